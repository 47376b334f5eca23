"""The background loops of a worker, one per file, and `outage_log`, their log of store failures."""
