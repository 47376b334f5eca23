"""Browser sessions: a browser signs in with a key once, and then sends a cookie.

A session refers to its key, and has the key's current permissions. The store keeps a hash.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import Any

from fastapi import Request, Response

from windlass.core.clock import Instant, after
from windlass.core.versioned_record import Put
from windlass.store import Store

SESSION = "session"  # the record kind; the record key is the hash
COOKIE = "windlass_session"
LIFETIME = 12 * 3600.0  # seconds
PATH = "/api/session"
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_COOKIE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


class Sessions:
    """The browser sessions of a store; use it on the event loop of the store handle."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def start(self, key_id: str) -> tuple[str, Instant]:
        """Return the cookie value of a new session, and when it expires."""
        secret = secrets.token_urlsafe(32)
        put = Put(
            kind=SESSION,
            key=hash_secret(secret),
            value=key_id.encode(),
            expected=0,
            ttl=LIFETIME,
        )
        await self._store.put_records([put])
        return secret, after(await self._store.ping(), LIFETIME)

    async def key_id(self, session: str) -> str | None:
        """Return the key id of a session (by its hash); None if it has ended."""
        [entry] = await self._store.get_records(SESSION, [session])
        return None if entry is None else entry.value.decode()

    async def end(self, session: str) -> None:
        await self._store.delete_records(SESSION, [session])


def hash_secret(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def session_from_cookie(request: Request) -> str | None:
    """Return the hash of the session in the cookie."""
    value = request.cookies.get(COOKIE)
    return None if value is None or not _SECRET.fullmatch(value) else hash_secret(value)


def set_cookie(request: Request, response: Response, secret: str) -> None:
    """Set the cookie: hidden from scripts, same-site, and only for the path of this application."""
    response.set_cookie(COOKIE, secret, max_age=round(LIFETIME), **_attributes(request))


def clear_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE, **_attributes(request))


def _attributes(request: Request) -> dict[str, Any]:
    root = request.url.path.removesuffix(PATH)
    return {
        "path": root if root and _COOKIE_PATH.fullmatch(root) else "/",
        "secure": request.url.scheme == "https",
        "httponly": True,
        "samesite": "strict",
    }
