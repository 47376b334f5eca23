"""The background loops of a worker, one per file.

`queue_slots` and `outage_log` are parts that loops use.
"""
