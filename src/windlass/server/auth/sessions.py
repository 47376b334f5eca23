"""Sessions: a browser that was shown a key once, and goes on by a cookie.

A session names its key, and is worth what the key is worth at the moment. What is kept is a hash.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import Any

from fastapi import Request, Response

from windlass.core.clock import Instant, after
from windlass.core.records import Put
from windlass.store import Store

SESSION = "session"  # the kind of these records; the key is the hash
COOKIE = "windlass_session"
SECONDS = 12 * 3600.0
PATH = "/api/session"
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_PLAIN = re.compile(r"(/[A-Za-z0-9._~-]+)*")


class Sessions:
    """Speaks to one store handle, on the event loop that owns it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def start(self, key_id: str) -> tuple[str, Instant]:
        """What the cookie carries, and until when it is good."""
        secret = secrets.token_urlsafe(32)
        put = Put(kind=SESSION, key=hashed(secret), value=key_id.encode(), expected=0, ttl=SECONDS)
        await self._store.put_records([put])
        return secret, after(await self._store.ping(), SECONDS)

    async def key_of(self, session: str) -> str | None:
        """The id of the key that a session (by its hash) stands for, while it lasts."""
        [entry] = await self._store.get_records(SESSION, [session])
        return None if entry is None else entry.value.decode()

    async def end(self, session: str) -> None:
        await self._store.delete_records(SESSION, [session])


def hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def session_of(request: Request) -> str | None:
    """The session that a cookie names, by its hash."""
    given = request.cookies.get(COOKIE)
    return None if given is None or not _SECRET.fullmatch(given) else hashed(given)


def set_cookie(request: Request, response: Response, secret: str) -> None:
    """No script reads it, no other site's page sends it, and no other application here sees it."""
    response.set_cookie(COOKIE, secret, max_age=round(SECONDS), **_cookie(request))


def drop_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE, **_cookie(request))


def _cookie(request: Request) -> dict[str, Any]:
    place = request.url.path.removesuffix(PATH)
    return {
        "path": place if place and _PLAIN.fullmatch(place) else "/",
        "secure": request.url.scheme == "https",
        "httponly": True,
        "samesite": "strict",
    }
