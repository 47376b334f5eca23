"""Schema of the PostgreSQL store: migrations, roles, checks."""
