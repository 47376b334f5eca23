"""Settles plain successes, nearly all outcomes, in one statement: the fast path of `apply`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from operator import attrgetter
from uuid import UUID

from asyncpg.exceptions import LockNotAvailableError

from windlass.core.clock import Instant
from windlass.core.decisions.transition import ApplyRequest, Transition
from windlass.core.job.state import Trigger
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.queries import SQL


def select_plain(requests: Mapping[int, ApplyRequest]) -> list[Transition]:
    """Return the transitions that `succeed` may settle: their order in the batch is irrelevant."""
    if len({request.job_id for request in requests.values()}) < len(requests):
        return []  # several requests for one job need their order
    transitions = [one for one in requests.values() if isinstance(one, Transition)]
    if any(transition.children for transition in transitions):
        return []  # so do children: they may share a key with the job
    return [
        transition
        for transition in transitions
        if transition.trigger is Trigger.SUCCEED
        and transition.token is not None
        and not transition.records
    ]


def _lease_table(
    transitions: Sequence[Transition],
) -> tuple[list[UUID], bytes, list[int], list[UUID | None]]:
    """Return ids, the index of the lease of each, and the fences and tokens of the leases."""
    ids: list[UUID] = []
    index_bytes: list[bytes] = []
    indexes: dict[tuple[int, UUID | None], bytes] = {}
    fence, token, index = -1, None, b""
    for transition in transitions:
        ids.append(transition.job_id)
        # Jobs of one claim are usually adjacent.
        if transition.token is not token or transition.fence != fence:
            fence, token = transition.fence, transition.token
            index = indexes.setdefault((fence, token), len(indexes).to_bytes(2, "little"))
        index_bytes.append(index)
    return (
        ids,
        b"".join(index_bytes),
        [lease[0] for lease in indexes],
        [lease[1] for lease in indexes],
    )


async def settle_successes(
    connection: Connection,
    transitions: Sequence[Transition],
    now: Instant | None,
    shard: int,
    *,
    is_whole_call: bool,
) -> tuple[set[UUID], list[UUID], list[str]]:
    """Settle transitions whose lease is valid; `apply` decides the rest.

    Return the settled jobs, the jobs that gates admitted, and gates left to open. Gates open here
    only if these transitions are the whole call and all of them are settled.
    """
    ordered = [
        (transition, transition.result)
        for transition in sorted(transitions, key=attrgetter("job_id"))
    ]
    done: set[UUID] = set()
    admitted: list[UUID] = []
    gates: list[str] = []
    # Suppressed if another transaction has locked one of the jobs: `apply` handles it.
    with contextlib.suppress(LockNotAvailableError):
        for chunk in rows.chunks(ordered, 1):
            ids, *leases = _lease_table([transition for transition, _ in chunk])
            results = [result for _, result in chunk]
            same_result = results.count(results[0]) == len(results)
            result = ((), results[0]) if same_result else (results, None)
            found = await connection.fetch(
                SQL.succeed, now, ids, *leases, *result, shard, is_whole_call
            )
            [[count, settled_ids, admitted_ids, left_gates]] = found
            done.update(ids if count == len(ids) else settled_ids or ())
            admitted += admitted_ids or ()
            gates += left_gates or ()
    return done, admitted, gates
