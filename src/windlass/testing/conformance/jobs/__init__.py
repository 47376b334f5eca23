"""Promises about jobs: enqueue, order, keys, cancel, retry, retention."""
