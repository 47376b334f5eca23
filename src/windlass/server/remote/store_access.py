"""The store behind the server, for one caller: every verb as far as they may use it.

What a role may not do is refused; of jobs that are not the caller's, nothing is told: they are
missing, as if they did not exist. Whoever may work may also do what a running task does: enqueue,
cancel, signal. A lease's token, which lets its bearer speak for an attempt, is for those who may
work, and for nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import (
    Answer,
    CancelRequest,
    Checkpoint,
    Signal,
    Status,
    Transition,
)
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges, FlowPage, FlowStats
from windlass.core.job.failure import Failures
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import Trigger
from windlass.core.query.job_query import Count, Page, Query
from windlass.insights.failures import LOOKED_AT
from windlass.server.auth.authenticator import Caller, Need
from windlass.server.auth.ownership import enqueue_own
from windlass.server.context import Visit
from windlass.server.problems import Refusal
from windlass.store import EventPage

T = TypeVar("T")
TOLD = 20  # jobs that a note names
MOST_FLOWS = 100
MOST_EVENTS = 1000  # in one answer; whoever wants more asks again
_MISSING = Answer(Status.MISSING)
_OPERATING = frozenset({Trigger.SUBMIT, Trigger.CANCEL})


def require(caller: Caller, *needs: Need) -> None:
    if not caller.has(*needs):
        wanted = " or to ".join(needs)
        held = ", ".join(sorted(caller.roles)) or "no role"
        part = ", and is for some jobs only" if caller.confined else ""
        raise Refusal("forbidden", f"this needs the right to {wanted}; the key has {held}{part}")


# -- putting in


async def enqueue(here: Visit, jobs: Sequence[NewJob], *, together: bool) -> list[Enqueued]:
    require(here.caller, Need.PRODUCE, Need.WORK)
    for resume in (False, True):
        again = [one.retry_of for one in jobs if one.retry_of and one.resume is resume]
        await _note(here, "resume" if resume else "retry", again)
    way_in = partial(here.client.store.enqueue, together=together)
    answers = await enqueue_own(here, jobs, way_in, together=together)
    if here.caller.has(Need.WORK):
        return answers
    return [_without_token(here.caller, one) for one in answers]


def _without_token(caller: Caller, answer: Enqueued) -> Enqueued:
    """With the row, for whose key gave it an owner: they know the job only as they sent it."""
    row = answer.row if caller.confined else answer.existing
    return answer if row is None else replace(answer, existing=_bare(row))


# -- acting


async def apply(here: Visit, transitions: Sequence[Transition]) -> list[Answer]:
    """Those who may not work may submit what is held, and cancel what waits."""
    if not all(_is_plain(wish) for wish in transitions):
        require(here.caller, Need.WORK)
        return await here.client.store.apply(transitions)
    require(here.caller, Need.PRODUCE, Need.WORK)
    for trigger in _OPERATING:
        concerned = [wish.job_id for wish in transitions if wish.trigger is trigger]
        await _note(here, trigger.value, concerned)
    return await _own(here, transitions, here.client.store.apply)


def _is_plain(wish: Transition) -> bool:
    """Whether it says no more than that a job is to be submitted, or canceled."""
    bare = Transition(
        job_id=wish.job_id, fence=wish.fence, trigger=wish.trigger, reason=wish.reason
    )
    return wish.trigger in _OPERATING and wish == bare


async def cancel(here: Visit, requests: Sequence[CancelRequest]) -> list[Answer]:
    require(here.caller, Need.PRODUCE, Need.WORK)
    await _note(here, "cancel", [one.job_id for one in requests])
    return await _own(here, requests, here.client.store.cancel)


async def signal(here: Visit, signals: Sequence[Signal]) -> list[Answer]:
    require(here.caller, Need.PRODUCE, Need.WORK)
    await _note(here, "signal", [one.job_id for one in signals])
    return await _own(here, signals, here.client.store.signal)


async def delete(here: Visit, ids: Sequence[UUID], owner: str | None) -> list[Answer]:
    await _note(here, "delete", ids)
    known = await seen(here, ids)
    answers = await here.client.store.delete([id_ for id_ in ids if id_ in known], owner)
    told = iter(answers)
    return [next(told) if id_ in known else _MISSING for id_ in ids]


async def pause(here: Visit, queues: Sequence[str], *, paused: bool) -> None:
    for queue in queues:
        await here.record("pause queue" if paused else "resume queue", queue)
    await here.client.store.pause(queues, paused=paused)


async def _own(
    here: Visit,
    items: Sequence[Any],
    act: Callable[[Sequence[Any]], Awaitable[list[Answer]]],
) -> list[Answer]:
    """Do it to the caller's jobs; others are missing."""
    known = await seen(here, [one.job_id for one in items])
    told = iter(await act([one for one in items if one.job_id in known]))
    return [next(told) if one.job_id in known else _MISSING for one in items]


async def seen(here: Visit, ids: Sequence[UUID]) -> set[UUID]:
    """Which of these the caller may know of; who sees all jobs is not asked to look."""
    if not here.caller.confined:
        return set(ids)
    rows = await here.client.store.get(list(set(ids)))
    return {row.id for row in rows if row is not None and here.caller.sees(row)}


async def _note(here: Visit, action: str, ids: Sequence[UUID]) -> None:
    """One note for all that the caller sees; of others' jobs nothing is noted."""
    if not ids:
        return
    known = await seen(here, ids)
    named = [str(id_) for id_ in ids if id_ in known]
    if named:
        more = f" and {len(named) - TOLD} more" if len(named) > TOLD else ""
        await here.record(action, " ".join(named[:TOLD]) + more)


# -- reading


def _bare(row: JobRow) -> JobRow:
    return row if row.token is None else replace(row, token=None)


def _shown(caller: Caller, row: JobRow | None) -> JobRow | None:
    if row is None or not caller.sees(row):
        return None
    return row if caller.has(Need.WORK) else _bare(row)


async def get(here: Visit, ids: Sequence[UUID], owner: str | None) -> list[JobRow | None]:
    rows = await here.client.store.get(ids, owner)
    return [_shown(here.caller, row) for row in rows]


async def find(here: Visit, query: Query) -> Page:
    own = _narrowed(here.caller, query)
    if own is None:
        return Page([], None)
    page = await here.client.store.find(own)
    if here.caller.has(Need.WORK):
        return page
    return Page([_bare(row) for row in page.rows], page.cursor)


async def count(here: Visit, query: Query) -> Count:
    own = _narrowed(here.caller, query)
    return Count(0, capped=False) if own is None else await here.client.store.count(own)


async def failures(
    here: Visit, since: Instant, limit: int, owner: str | None, team: str | None
) -> Failures:
    own = _narrowed(here.caller, Query(owner=owner, team=team))
    if own is None:
        return Failures([], capped=False)
    limit = max(1, min(limit, LOOKED_AT))
    return await here.client.store.failures(since, limit, own.owner, own.team)


def _narrowed(caller: Caller, query: Query) -> Query | None:
    """The same search among what the caller sees; None if it asks for nothing of that."""
    for name in ("owner", "team"):
        own, given = getattr(caller, name), getattr(query, name)
        if own is not None and given not in {None, own}:
            return None
        if own is not None:
            query = replace(query, **{name: own})
    return query


async def events(here: Visit, job_id: UUID, after: int, limit: int) -> EventPage | None:
    if not await seen(here, [job_id]):
        return None
    return await here.client.store.events(job_id, after, max(1, min(limit, MOST_EVENTS)))


async def attempts(here: Visit, job_id: UUID) -> list[Attempt] | None:
    return await here.client.store.attempts(job_id) if await seen(here, [job_id]) else None


async def checkpoints(here: Visit, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
    known = await seen(here, ids)
    found = await here.client.store.checkpoints(ids)
    return [one if id_ in known else {} for id_, one in zip(ids, found, strict=True)]


async def edges(here: Visit, ids: Sequence[UUID], most: int | None) -> list[Edges]:
    found = await here.client.store.edges(ids, most)
    if not here.caller.confined:
        return found
    named = {id_ for one in found for id_ in (*one.parents, *one.children)}
    known = await seen(here, [*ids, *named])
    return [
        Edges(
            tuple(parent for parent in one.parents if parent in known),
            tuple(child for child in one.children if child in known),
        )
        if id_ in known
        else Edges()
        for id_, one in zip(ids, found, strict=True)
    ]


async def newest_flows(
    here: Visit, limit: int, before: UUID | None, owner: str | None, team: str | None
) -> FlowPage:
    own = _narrowed(here.caller, Query(owner=owner, team=team))
    if own is None:
        return FlowPage([], None)
    limit = max(1, min(limit, MOST_FLOWS))
    return await here.client.store.newest_flows(limit, before, own.owner, own.team)


async def flows(
    here: Visit, ids: Sequence[UUID], owner: str | None, team: str | None
) -> list[FlowStats | None]:
    own = _narrowed(here.caller, Query(owner=owner, team=team))
    if own is None:
        return [None] * len(ids)
    return await here.client.store.flows(ids, own.owner, own.team)
