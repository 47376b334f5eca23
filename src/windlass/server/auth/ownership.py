"""Whose jobs are whose: the one rule for keys of an owner or a team, at every door.

What such a key makes belongs to its owner and team. What it names must be theirs; what is not, is
as good as unknown. Owners are for the store to keep apart; of teams it knows nothing, so that is
done here: another team's job is no parent, is not retried, gives way to nothing, and never answers
for one's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from windlass.core.decisions.enqueue import Enqueued, EnqueueStatus, no_origin, no_parent
from windlass.core.errors import ConflictError, InvalidArgumentError, NotFoundError, RequestError
from windlass.core.job.row import NewJob
from windlass.core.job.state import State
from windlass.core.query.job_query import Query
from windlass.server.auth.authenticator import Caller
from windlass.server.context import Visit

_ACTIVE = frozenset(state for state in State if not state.final)
WayIn = Callable[[list[NewJob]], Awaitable[list[Enqueued]]]


def belonging(field: str, given: str | None, own: str | None) -> str | None:
    """The owner (or the team) that is meant: the key's own, if it has one; no other may be named.

    Raises InvalidArgumentError.
    """
    if own is None:
        return given
    if given not in {None, own}:
        raise InvalidArgumentError(
            f"{field} is {given!r:.80}, and this key is for {own!r:.80}; leave it out"
        )
    return own


async def enqueue_own(
    here: Visit, jobs: Sequence[NewJob], way_in: WayIn, *, together: bool = False
) -> list[Enqueued]:
    """An answer for each, in order; those that may be are put in by `way_in`, in one call."""
    if not here.caller.confined:
        return await way_in(list(jobs))
    known = await _Surroundings.of(here, jobs)
    given = [await _given(here, new, known) for new in jobs]
    first = next((one for one in given if not isinstance(one, NewJob)), None)
    if together and first is not None:
        return [Enqueued(EnqueueStatus.REFUSED, new, error=first) for new in jobs]
    answers = iter(await way_in([one for one in given if isinstance(one, NewJob)]))
    return [
        told(here.caller, next(answers)) if isinstance(one, NewJob) else _refused(new, one)
        for new, one in zip(jobs, given, strict=True)
    ]


def told(caller: Caller, answer: Enqueued) -> Enqueued:
    """What a caller may know of an answer: nothing of a job that is not theirs."""
    if answer.existing is None or caller.sees(answer.existing):
        return answer
    return _refused(answer.new, _taken(answer.new))


def _refused(new: NewJob, error: RequestError) -> Enqueued:
    taken = isinstance(error, ConflictError)
    return Enqueued(EnqueueStatus.CONFLICT if taken else EnqueueStatus.REFUSED, new, error=error)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What jobs point to that another team has, and whether the caller may join each flow."""

    foreign: frozenset[UUID]
    flows: Mapping[UUID, bool]

    @staticmethod
    async def of(here: Visit, jobs: Sequence[NewJob]) -> _Surroundings:
        named = {id_ for new in jobs for id_ in (*new.depends_on, new.retry_of) if id_ is not None}
        rows = await here.client.store.get(sorted(named)) if here.caller.team is not None else []
        foreign = frozenset(row.id for row in rows if row and not here.caller.sees(row))
        flows = {new.flow_id for new in jobs if new.flow_id is not None}
        return _Surroundings(foreign, {id_: await _may_join(here, id_) for id_ in flows})


async def _given(here: Visit, new: NewJob, known: _Surroundings) -> NewJob | RequestError:
    """The job as the caller's own, or why it may not be."""
    caller = here.caller
    try:
        owner = belonging("owner", new.owner or None, caller.owner)
        team = belonging("team", new.team, caller.team)
    except InvalidArgumentError as error:
        return error
    for parent in new.depends_on:
        if parent in known.foreign:
            return no_parent(new, parent)
    if new.retry_of in known.foreign:
        return no_origin(new)
    if new.flow_id is not None and not known.flows[new.flow_id]:
        return NotFoundError(f"no flow {new.flow_id}")
    own = replace(new, owner=owner or "", team=team)
    return _taken(new) if await _would_displace(here, own) else own


async def _would_displace(here: Visit, job: NewJob) -> bool:
    """Whether another team's job would have to give way."""
    if here.caller.team is None or not job.debounce or job.unique_key is None:
        return False
    search = Query(
        owner=job.owner,
        tasks=frozenset({job.task}),
        unique_key=job.unique_key,
        states=_ACTIVE,
        limit=1,
    )
    rows = (await here.client.store.find(search)).rows
    return any(not here.caller.sees(row) for row in rows)


def _taken(job: NewJob) -> ConflictError:
    return ConflictError(
        f"the id, request id or unique key of job {job.id} is taken by a job of another team; "
        "use others"
    )


async def _owns_flow(here: Visit, flow_id: UUID) -> bool:
    """Whether any of its jobs is the caller's."""
    query = Query(flow_id=flow_id, owner=here.caller.owner, team=here.caller.team, limit=1)
    while True:
        page = await here.client.store.find(query)
        if page.rows or page.cursor is None:
            return bool(page.rows)
        query = replace(query, cursor=page.cursor)


async def _may_join(here: Visit, flow_id: UUID) -> bool:
    """Whoever put a job into another's flow would see that flow."""
    [stats] = await here.client.store.flows([flow_id])
    return stats is None or await _owns_flow(here, flow_id)
