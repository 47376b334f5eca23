"""Batch tasks: one call for many jobs."""
