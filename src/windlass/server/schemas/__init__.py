"""JSON schemas of requests and responses."""
