"""The background loops of a worker, one per file."""
