"""Execution of one attempt: the executor, its errors and failures, unknown tasks."""
