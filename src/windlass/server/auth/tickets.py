"""Tickets: let a browser open a stream, which cannot send a key. Each opens one, within a minute.

What is kept is a hash. Two who bring the same ticket meet in the store: one of them is let in.
"""

from __future__ import annotations

import json
import secrets
from hashlib import sha256

from windlass.core.clock import Instant, after
from windlass.core.records import Put
from windlass.store import Store

TICKET = "stream-ticket"  # the kind of these records; the key is the hash
SECONDS = 60.0
MAX_LENGTH = 64


def _hash(ticket: str) -> str:
    return sha256(ticket.encode()).hexdigest()


class Tickets:
    """Speaks to one store handle, on the event loop that owns it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def issue(self, key_id: str, session: str | None = None) -> tuple[str, Instant]:
        """For the holder of this key; and until when it is good. It ends with the session."""
        ticket = secrets.token_urlsafe(32)
        value = json.dumps({"key_id": key_id, "session": session, "used": None}).encode()
        put = Put(kind=TICKET, key=_hash(ticket), value=value, expected=0, ttl=SECONDS)
        await self._store.put_records([put])
        return ticket, after(await self._store.ping(), SECONDS)

    async def redeem(self, ticket: str) -> tuple[str, str | None] | None:
        """The key that it stands for, and the session; None if it is not good, or no more."""
        if len(ticket) > MAX_LENGTH:
            return None
        [entry] = await self._store.get_records(TICKET, [_hash(ticket)])
        if entry is None:
            return None
        facts = json.loads(entry.value)
        if facts["used"] is not None:
            return None
        # Whoever competes for a record puts a name of their own in it.
        value = json.dumps(facts | {"used": secrets.token_hex(8)}).encode()
        put = Put(kind=TICKET, key=entry.key, value=value, expected=entry.version, ttl=SECONDS)
        [answer] = await self._store.put_records([put])
        return (facts["key_id"], facts.get("session")) if answer.applied else None
