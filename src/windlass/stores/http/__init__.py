"""Store that talks to a Windlass server over HTTP, without access to its database."""

from __future__ import annotations

from windlass.stores.http.config import HttpConfig
from windlass.stores.http.store import HttpStore

__all__ = ["HttpConfig", "HttpStore"]
