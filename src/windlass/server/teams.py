"""Enqueueing for somebody who sees a part of the jobs: the store keeps owners apart, we teams."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.enqueue import Enqueued, EnqueueStatus, no_parent
from windlass.core.errors import ConflictError, RequestError
from windlass.core.job import NewJob
from windlass.core.query import Query
from windlass.core.state import State
from windlass.server.site import Visit

_ACTIVE = frozenset(state for state in State if not state.final)


async def enqueued_by(here: Visit, jobs: list[NewJob]) -> list[Enqueued]:
    """An answer for each, in order; another team's jobs are neither told of nor touched."""
    if here.caller.team is None:
        return await here.app.aenqueue_each(jobs)
    foreign = await _foreign_parents(here, jobs)
    refused = [await _refusal(here, job, foreign) for job in jobs]
    pairs = zip(jobs, refused, strict=True)
    good = iter(await here.app.aenqueue_each([job for job, error in pairs if error is None]))
    return [
        _seen(here, next(good))
        if error is None
        else Enqueued(status=EnqueueStatus.REFUSED, new=job, error=error)
        for job, error in zip(jobs, refused, strict=True)
    ]


async def _foreign_parents(here: Visit, jobs: Sequence[NewJob]) -> set[UUID]:
    named = sorted({parent for job in jobs for parent in job.depends_on})
    rows = await here.client.store.get(named)
    return {row.id for row in rows if row is not None and not here.caller.sees(row)}


async def _refusal(here: Visit, job: NewJob, foreign: set[UUID]) -> RequestError | None:
    for parent in job.depends_on:
        if parent in foreign:
            return no_parent(job, parent)
    return await displaced(here, job)


async def displaced(here: Visit, job: NewJob) -> RequestError | None:
    """Another team's job must not give way."""
    if job.debounce and job.unique_key is not None:
        search = Query(
            owner=job.owner,
            tasks=frozenset({job.task}),
            unique_key=job.unique_key,
            states=_ACTIVE,
            limit=1,
        )
        rows = (await here.client.store.find(search)).rows
        if any(not here.caller.sees(row) for row in rows):
            return _taken(job)
    return None


def _seen(here: Visit, answer: Enqueued) -> Enqueued:
    if answer.existing is None or here.caller.sees(answer.existing):
        return answer
    return Enqueued(status=EnqueueStatus.CONFLICT, new=answer.new, error=_taken(answer.new))


def _taken(job: NewJob) -> ConflictError:
    return ConflictError(
        f"the id, request id or unique key of job {job.id} is taken by a job of another team"
    )
