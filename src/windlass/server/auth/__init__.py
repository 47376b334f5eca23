"""Authentication and permissions of the server's callers."""
