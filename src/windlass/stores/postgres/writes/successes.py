"""The one outcome that is nearly all of them, many in one statement; the rest is `jobs.apply`'s."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from operator import attrgetter
from uuid import UUID

from asyncpg.exceptions import LockNotAvailableError

from windlass.core.clock import Instant
from windlass.core.decisions.transition import Transition
from windlass.core.job.state import Trigger
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.queries import SQL


def plain(wishes: Mapping[int, Transition]) -> list[Transition]:
    """Those that `succeed` may settle: nobody else in the batch depends on their turn."""
    if len({wish.job_id for wish in wishes.values()}) < len(wishes):
        return []  # a job that comes twice needs its order
    if any(wish.children for wish in wishes.values()):
        return []  # and so do children, who may meet it
    return [
        wish
        for wish in wishes.values()
        if wish.trigger is Trigger.SUCCEED and wish.token is not None and not wish.records
    ]


def _kinds(wishes: Sequence[Transition]) -> tuple[list[UUID], bytes, list[int], list[UUID | None]]:
    """Their ids, of which kind each is, and the fence and the token of each kind."""
    ids: list[UUID] = []
    marks: list[bytes] = []
    known: dict[tuple[int, UUID | None], bytes] = {}
    fence, token, mark = -1, None, b""
    for wish in wishes:
        ids.append(wish.job_id)
        if wish.token is not token or wish.fence != fence:  # those of one claim stand together
            fence, token = wish.fence, wish.token
            mark = known.setdefault((fence, token), len(known).to_bytes(2, "little"))
        marks.append(mark)
    return ids, b"".join(marks), [kind[0] for kind in known], [kind[1] for kind in known]


async def succeed(
    connection: Connection,
    wishes: Sequence[Transition],
    now: Instant | None,
    shard: int,
    *,
    alone: bool,
) -> tuple[set[UUID], list[UUID], list[str]]:
    """Settle what still holds; the rest is for `apply` to decide about.

    If nothing is left, and they are `alone` in their call, whom that lets in; else the gates at
    which it makes room, to be looked at with the rest.
    """
    order = [(wish, wish.result) for wish in sorted(wishes, key=attrgetter("job_id"))]
    done: set[UUID] = set()
    let_in: list[UUID] = []
    room: list[str] = []
    with contextlib.suppress(LockNotAvailableError):  # somebody has one of them: see there
        for piece in rows.portions(order, 1):
            ids, *leases = _kinds([wish for wish, _ in piece])
            results = [result for _, result in piece]
            alike = results.count(results[0]) == len(results)
            result = ((), results[0]) if alike else (results, None)
            found = await connection.fetch(SQL.succeed, now, ids, *leases, *result, shard, alone)
            [[count, some, came, left]] = found
            done.update(ids if count == len(ids) else some or ())
            let_in += came or ()
            room += left or ()
    return done, let_in, room
