"""Audit log: an entry in the store for each privileged action, written before the action."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass

from windlass.core.clock import MAX_INSTANT, Instant
from windlass.core.versioned_record import Put
from windlass.store import DAY, Store

AUDIT = "audit"  # the record kind; its keys decrease with time, so the newest entry sorts first
RETENTION = 90 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`key_id` is None for a request without a key; `cursor` leads to older entries."""

    at: Instant
    key_id: str | None
    name: str
    action: str
    target: str
    cursor: str = ""


class AuditLog:
    """The audit log of a store; use it on the event loop of the store handle."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, key_id: str | None, name: str, action: str, target: str) -> None:
        now = await self._store.ping()
        entry = AuditEntry(at=now, key_id=key_id, name=name, action=action, target=target)
        values = {key: value for key, value in asdict(entry).items() if key != "cursor"}
        put = Put(
            kind=AUDIT,
            key=f"{MAX_INSTANT - now:017d}-{secrets.token_hex(4)}",
            value=json.dumps(values, separators=(",", ":")).encode(),
            ttl=RETENTION,
        )
        await self._store.put_records([put])

    async def list(self, after: str = "", limit: int = 100) -> list[AuditEntry]:
        """Return entries after the cursor, newest first."""
        records = await self._store.list_records(AUDIT, after, limit)
        return [AuditEntry(**json.loads(record.value), cursor=record.key) for record in records]
