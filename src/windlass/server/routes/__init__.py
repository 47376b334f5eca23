"""HTTP endpoints, one module for each resource, and the route table."""
