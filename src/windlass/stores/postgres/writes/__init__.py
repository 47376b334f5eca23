"""The write operations of the PostgreSQL store."""
