"""The write operations of the SQLite store."""
