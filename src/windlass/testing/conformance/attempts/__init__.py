"""Promises about attempts: claim, lease, records, settle, retries, suspension."""
