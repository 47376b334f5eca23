"""Small data by its kind: who may read it, who may write it, and what nobody gets to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.core.admission.gates import LIMIT
from windlass.core.job.failure import UNKNOWN_TASK
from windlass.core.records import PAUSED, Entry, Put, PutAnswer
from windlass.core.schedule import MARK, SCHEDULE
from windlass.core.worker_presence import WORKER
from windlass.server.auth.api_keys import KEY
from windlass.server.auth.audit import AUDIT
from windlass.server.auth.authenticator import Need
from windlass.server.auth.sessions import SESSION
from windlass.server.auth.task_tokens import SIGNING
from windlass.server.auth.tickets import TICKET
from windlass.server.context import Visit
from windlass.server.problems import Refusal
from windlass.server.remote.store_access import require


@dataclass(frozen=True, slots=True)
class Kind:
    """Any one of the rights is enough. What is `noted` leaves a note in the audit."""

    read: frozenset[Need]
    write: frozenset[Need]
    noted: bool = True


_SURVEY = frozenset({Need.SURVEY})
_SET = frozenset({Need.OPERATE, Need.WORK})  # workers store what their code declares
_WORK = frozenset({Need.WORK})
_ADMIN = frozenset({Need.ADMIN})

KINDS: Mapping[str, Kind] = {
    WORKER: Kind(_SURVEY, _WORK, noted=False),
    LIMIT: Kind(_SURVEY, _SET),
    SCHEDULE: Kind(_SURVEY, _SET),
    MARK: Kind(_SURVEY, _SET, noted=False),
    PAUSED: Kind(_SURVEY, frozenset({Need.OPERATE})),
    UNKNOWN_TASK: Kind(_WORK, _WORK, noted=False),
    AUDIT: Kind(_ADMIN, _ADMIN, noted=False),
}
OTHER = Kind(_ADMIN, _ADMIN)  # keys among them
KEPT = frozenset({AUDIT, KEY})  # a store that had keys must not come to look as if it had none
NEVER = frozenset({SESSION, SIGNING, TICKET})  # no business of anybody's but the server's


def kind_of(name: str) -> Kind:
    if name in NEVER:
        raise Refusal("forbidden", f"records of kind {name!r} are the server's own")
    return KINDS.get(name, OTHER)


async def put_records(here: Visit, puts: Sequence[Put]) -> list[PutAnswer]:
    for name in {put.kind for put in puts}:
        kind = kind_of(name)
        require(here.caller, *kind.write)
        if kind.noted:
            keys = [put.key for put in puts if put.kind == name]
            await here.record(f"write {name}", " ".join(keys))
    # A note may be added, and never changed.
    added = [replace(put, expected=0) if put.kind == AUDIT else put for put in puts]
    return await here.client.store.put_records(added)


async def get_records(here: Visit, kind: str, keys: Sequence[str]) -> list[Entry | None]:
    """A limit may be looked up by whoever names it: those who enqueue compare it with their own."""
    require(here.caller, *kind_of(kind).read, *({Need.READ} if kind == LIMIT else ()))
    return await here.client.store.get_records(kind, keys)


async def list_records(here: Visit, kind: str, after: str, limit: int) -> list[Entry]:
    require(here.caller, *kind_of(kind).read)
    return await here.client.store.list_records(kind, after, limit)


async def delete_records(here: Visit, kind: str, keys: Sequence[str]) -> None:
    rights = kind_of(kind)
    if kind in KEPT:
        raise Refusal("forbidden", f"records of kind {kind!r} are not deleted; keys are revoked")
    require(here.caller, *rights.write)
    if rights.noted and keys:
        await here.record(f"delete {kind}", " ".join(keys))
    await here.client.store.delete_records(kind, keys)
