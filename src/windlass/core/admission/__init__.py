"""Admission of jobs: limits, gates, limit keys."""
