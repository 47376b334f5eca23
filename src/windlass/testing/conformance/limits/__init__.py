"""Promises about limits, gates and fairness."""
