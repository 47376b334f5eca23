"""Tasks in child processes."""
