"""Administration of the PostgreSQL store: migrations, roles, checkup."""
