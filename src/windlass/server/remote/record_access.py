"""Access to records over HTTP: the permissions to read and write each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.core.admission.limit import LIMIT
from windlass.core.job.failure import UNKNOWN_TASK
from windlass.core.schedule import MARK, SCHEDULE
from windlass.core.versioned_record import PAUSED, Entry, Put, PutResult
from windlass.core.worker_presence import WORKER
from windlass.server.auth.api_keys import API_KEY
from windlass.server.auth.audit import AUDIT
from windlass.server.auth.permissions import Permission
from windlass.server.auth.sessions import SESSION
from windlass.server.auth.tickets import TICKET
from windlass.server.auth.token_signer import SIGNING_KEY
from windlass.server.context import RequestContext
from windlass.server.problem_details import ApiError
from windlass.server.remote.store_access import require


@dataclass(frozen=True, slots=True)
class RecordKind:
    """Permissions of a record kind: any one of a set is enough. Audited writes are logged."""

    read: frozenset[Permission]
    write: frozenset[Permission]
    audited: bool = True


_MONITOR = frozenset({Permission.MONITOR})
_DECLARE = frozenset({Permission.OPERATE, Permission.WORK})  # workers store declared values
_WORK = frozenset({Permission.WORK})
_ADMIN = frozenset({Permission.ADMIN})

KINDS: Mapping[str, RecordKind] = {
    WORKER: RecordKind(_MONITOR, _WORK, audited=False),
    LIMIT: RecordKind(_MONITOR, _DECLARE),
    SCHEDULE: RecordKind(_MONITOR, _DECLARE),
    MARK: RecordKind(_MONITOR, _DECLARE, audited=False),
    PAUSED: RecordKind(_MONITOR, frozenset({Permission.OPERATE})),
    UNKNOWN_TASK: RecordKind(_WORK, _WORK, audited=False),
    AUDIT: RecordKind(_ADMIN, _ADMIN, audited=False),
}
OTHER = RecordKind(_ADMIN, _ADMIN)  # API keys among them
UNDELETABLE = frozenset({AUDIT, API_KEY})  # a store whose keys were deleted would become open
_AUDIT_ACTIONS = {("write", PAUSED): "pause queue", ("delete", PAUSED): "resume queue"}
SERVER_ONLY = frozenset({SESSION, SIGNING_KEY, TICKET})


def kind_of(name: str) -> RecordKind:
    if name in SERVER_ONLY:
        raise ApiError("forbidden", f"records of kind {name!r} are reserved for the server")
    return KINDS.get(name, OTHER)


def _audit_action(verb: str, kind: str) -> str:
    return _AUDIT_ACTIONS.get((verb, kind), f"{verb} {kind}")


async def put_records(ctx: RequestContext, puts: Sequence[Put]) -> list[PutResult]:
    names = list(dict.fromkeys(put.kind for put in puts))
    for name in names:
        require(ctx.caller, *kind_of(name).write)
    for name in names:  # only now: the audit log must not have what was refused
        if kind_of(name).audited:
            keys = [put.key for put in puts if put.kind == name]
            await ctx.audit(_audit_action("write", name), " ".join(keys))
    # Audit entries may be added, but never changed.
    checked = [replace(put, expected=0) if put.kind == AUDIT else put for put in puts]
    return await ctx.client.store.put_records(checked)


async def get_records(ctx: RequestContext, kind: str, keys: Sequence[str]) -> list[Entry | None]:
    """Get records. Any reader may get a named limit: producers compare it with their own."""
    require(ctx.caller, *kind_of(kind).read, *({Permission.READ} if kind == LIMIT else ()))
    return await ctx.client.store.get_records(kind, keys)


async def list_records(ctx: RequestContext, kind: str, after: str, limit: int) -> list[Entry]:
    require(ctx.caller, *kind_of(kind).read)
    return await ctx.client.store.list_records(kind, after, limit)


async def delete_records(ctx: RequestContext, kind: str, keys: Sequence[str]) -> None:
    access = kind_of(kind)
    if kind in UNDELETABLE:
        raise ApiError(
            "forbidden", f"records of kind {kind!r} cannot be deleted; revoke keys instead"
        )
    require(ctx.caller, *access.write)
    if access.audited and keys:
        await ctx.audit(_audit_action("delete", kind), " ".join(keys))
    await ctx.client.store.delete_records(kind, keys)
