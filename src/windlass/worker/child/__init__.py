"""Running tasks in child processes."""
