"""Versioned records of a store that are not jobs: schedules and limits."""
