"""Write operations of the PostgreSQL store."""
