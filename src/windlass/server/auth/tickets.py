"""Tickets: each opens one stream within a minute, because browsers send no key with EventSource.

The store keeps a hash. Of concurrent requests with the same ticket, the store accepts one.
"""

from __future__ import annotations

import json
import secrets
from hashlib import sha256

from windlass.core.clock import Instant, after
from windlass.core.versioned_record import Put
from windlass.store import Store

TICKET = "stream-ticket"  # the record kind; the record key is the hash
LIFETIME = 60.0  # seconds
MAX_LENGTH = 64


def _hash(ticket: str) -> str:
    return sha256(ticket.encode()).hexdigest()


class Tickets:
    """The stream tickets of a store; use it on the event loop of the store handle."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def issue(self, key_id: str, session: str | None = None) -> tuple[str, Instant]:
        """Return a ticket of this key, and when it expires. It ends with the session."""
        ticket = secrets.token_urlsafe(32)
        value = json.dumps({"key_id": key_id, "session": session, "used": None}).encode()
        put = Put(kind=TICKET, key=_hash(ticket), value=value, expected=0, ttl=LIFETIME)
        await self._store.put_records([put])
        return ticket, after(await self._store.ping(), LIFETIME)

    async def redeem(self, ticket: str) -> tuple[str, str | None] | None:
        """Use a ticket; return its key id and session, or None if it is invalid or used."""
        if len(ticket) > MAX_LENGTH:
            return None
        [entry] = await self._store.get_records(TICKET, [_hash(ticket)])
        if entry is None:
            return None
        values = json.loads(entry.value)
        if values["used"] is not None:
            return None
        # A unique value for each competing request, so that only one put applies.
        value = json.dumps(values | {"used": secrets.token_hex(8)}).encode()
        put = Put(kind=TICKET, key=entry.key, value=value, expected=entry.version, ttl=LIFETIME)
        [result] = await self._store.put_records([put])
        return (values["key_id"], values.get("session")) if result.applied else None
