"""Write operations of the SQLite store."""
