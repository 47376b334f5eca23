"""Batch tasks: one call runs many jobs. A batch is registered, collected, then called."""
