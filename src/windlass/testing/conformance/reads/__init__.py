"""Promises about reads: queries, statistics, events."""
