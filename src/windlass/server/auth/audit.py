"""Who did what: a note in the store for each privileged action, made before it is done."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass

from windlass.core.clock import MAX_INSTANT, Instant
from windlass.core.records import Put
from windlass.store import DAY, Store

AUDIT = "audit"  # the kind of these records; their keys fall with time, so the newest is first
KEPT = 90 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """`key_id` is None where no key was asked for; `cursor` leads to the notes before this one."""

    at: Instant
    key_id: str | None
    name: str
    action: str
    target: str
    cursor: str = ""


class Audit:
    """Speaks to one store handle, on the event loop that owns it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def note(self, key_id: str | None, name: str, action: str, target: str) -> None:
        now = await self._store.ping()
        note = Note(at=now, key_id=key_id, name=name, action=action, target=target)
        facts = {key: value for key, value in asdict(note).items() if key != "cursor"}
        put = Put(
            kind=AUDIT,
            key=f"{MAX_INSTANT - now:017d}-{secrets.token_hex(4)}",
            value=json.dumps(facts, separators=(",", ":")).encode(),
            ttl=KEPT,
        )
        await self._store.put_records([put])

    async def list(self, after: str = "", limit: int = 100) -> list[Note]:
        """The newest first, from beyond the cursor."""
        entries = await self._store.list_records(AUDIT, after, limit)
        return [Note(**json.loads(entry.value), cursor=entry.key) for entry in entries]
