"""Batch tasks: many jobs in one call."""
