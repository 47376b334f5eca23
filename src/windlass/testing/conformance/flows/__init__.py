"""Promises about dependencies and flows."""
