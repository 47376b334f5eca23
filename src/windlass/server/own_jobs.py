"""Jobs of a caller whose key is for one owner, or one team: theirs, among theirs, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.enqueue import Enqueued, EnqueueStatus
from windlass.core.errors import ConflictError, InvalidArgumentError, NotFoundError, RequestError
from windlass.core.job import NewJob
from windlass.core.query import Query
from windlass.server.door import Caller
from windlass.server.site import Visit
from windlass.server.teams import displaced


async def enqueue_own(here: Visit, jobs: Sequence[NewJob], *, together: bool) -> list[Enqueued]:
    """Each is given the key's owner and team, and refused if it names others."""
    known = await _Surroundings.of(here, jobs)
    errors = [
        _problem(here.caller, new, known) or await displaced(here, _given(here.caller, new))
        for new in jobs
    ]
    first = next((error for error in errors if error is not None), None)
    if together and first is not None:
        return [Enqueued(EnqueueStatus.REFUSED, new, error=first) for new in jobs]
    good = [
        _given(here.caller, new) for new, error in zip(jobs, errors, strict=True) if error is None
    ]
    answers = iter(await here.client.store.enqueue(good, together=together))
    return [
        _told(here.caller, next(answers))
        if error is None
        else Enqueued(EnqueueStatus.REFUSED, new, error=error)
        for new, error in zip(jobs, errors, strict=True)
    ]


class _Surroundings:
    """What these jobs point to, as far as the caller may know of it."""

    def __init__(self, jobs: set[UUID], flows: Mapping[UUID, bool]) -> None:
        self.jobs = jobs
        self.flows = flows

    @staticmethod
    async def of(here: Visit, jobs: Sequence[NewJob]) -> _Surroundings:
        """Owners are for the store to compare; teams it knows nothing of."""
        named = {id_ for new in jobs for id_ in (*new.depends_on, new.retry_of) if id_ is not None}
        seen = {new.id for new in jobs}
        if here.caller.team is not None and named - seen:
            rows = await here.client.store.get(list(named - seen))
            seen |= {row.id for row in rows if row is not None and here.caller.sees(row)}
        else:
            seen |= named
        flows = {new.flow_id for new in jobs if new.flow_id is not None}
        return _Surroundings(seen, {id_: await may_join(here, id_) for id_ in flows})


def _problem(caller: Caller, new: NewJob, known: _Surroundings) -> RequestError | None:
    if caller.owner is not None and new.owner not in {"", caller.owner}:
        return InvalidArgumentError(
            f"owner is {new.owner!r:.80}, and this key is for {caller.owner!r:.80}; leave it out"
        )
    if caller.team is not None and new.team not in {None, caller.team}:
        return InvalidArgumentError(
            f"team is {new.team!r:.80}, and this key is for {caller.team!r:.80}; leave it out"
        )
    for id_ in (*new.depends_on, new.retry_of):
        if id_ is not None and id_ not in known.jobs:
            return NotFoundError(f"job {new.id} points to {id_}, and there is no such job")
    if new.flow_id is not None and not known.flows[new.flow_id]:
        return NotFoundError(f"no flow {new.flow_id}")
    return None


def _given(caller: Caller, new: NewJob) -> NewJob:
    owner = new.owner if caller.owner is None else caller.owner
    team = new.team if caller.team is None else caller.team
    return replace(new, owner=owner, team=team)


def _told(caller: Caller, answer: Enqueued) -> Enqueued:
    """With the row, whose owner whoever asked may not have named; never another team's."""
    row = answer.row
    if row is None:
        return answer
    if not caller.sees(row):
        error = ConflictError(f"the names of job {answer.new.id} are taken; use others")
        return Enqueued(EnqueueStatus.CONFLICT, answer.new, error=error)
    return replace(answer, existing=replace(row, token=None))


async def owns_flow(here: Visit, flow_id: UUID) -> bool:
    """Whether any of its jobs is the caller's."""
    query = Query(flow_id=flow_id, owner=here.caller.owner, team=here.caller.team, limit=1)
    while True:
        page = await here.client.store.find(query)
        if page.rows or page.cursor is None:
            return bool(page.rows)
        query = replace(query, cursor=page.cursor)


async def may_join(here: Visit, flow_id: UUID) -> bool:
    """Whoever put a job into another's flow would see that flow."""
    [stats] = await here.client.store.flows([flow_id])
    return stats is None or await owns_flow(here, flow_id)
