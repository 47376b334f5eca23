"""The schema of the PostgreSQL store: migrations, roles, checks."""
