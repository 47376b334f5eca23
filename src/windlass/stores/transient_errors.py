"""Tells transient store errors from permanent ones."""

from __future__ import annotations

from windlass.core.errors import StoreError

# SQLSTATE classes: connection exceptions, insufficient resources, operator intervention
_TRANSIENT = {"08", "53", "57"}


def is_transient(error: StoreError) -> bool:
    """Return whether a retry may succeed: the server is down, starting or full.

    The cause is the driver's error: it has a SQLSTATE if PostgreSQL sent it, else it is an OSError.
    """
    state = getattr(error.__cause__, "sqlstate", None)
    return state[:2] in _TRANSIENT if state else isinstance(error.__cause__, OSError)
