"""One verb for all jobs that match a filter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from windlass.client import check_accepted
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Status
from windlass.core.errors import ConflictError, NotFoundError, RequestError
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import Page, Query, matches
from windlass.server.auth.authenticator import Need
from windlass.server.auth.ownership import told
from windlass.server.context import Here, Visit
from windlass.server.problems import Refusal, wrong
from windlass.server.schemas.jobs import ActionView, RefusedView
from windlass.server.schemas.requests import ActionAsked, Verb

ANEW = frozenset({Verb.RETRY, Verb.RESUME})  # all that failed, twice in a row, is not done twice
AT_A_TIME = 50  # whose writes a store may gather into one
TOLD = 20  # refusals that are told one by one


async def act(here: Here, body: ActionAsked) -> ActionView:
    """Do the same to every job that matches, up to `limit`; go on with `cursor` for the rest.

    With `id`, to those of the named jobs that match; one that is not there is not `matched`.
    A job whose state forbids it is refused alone, and told.
    """
    if body.action is Verb.DELETE and not here.caller.may(Need.REMOVE):
        raise Refusal("forbidden", "to delete jobs needs the right to remove")
    if body.filter.empty:
        raise wrong("filter", "it is empty; name what is meant: a queue, a state, a time")
    query = body.filter.query(here.caller, body.cursor)
    said = body.filter.model_dump_json(exclude_unset=True, by_alias=True)
    await here.record(f"{body.action.value} all that match", said)
    page = await _page(here, query, body.filter.id)
    refused: list[RefusedView] = []
    for start in range(0, len(page.rows), AT_A_TIME):
        some = page.rows[start : start + AT_A_TIME]
        answers = await asyncio.gather(*(_one(here, body, row) for row in some))
        refused += [one for one in answers if one is not None]
    return ActionView(
        matched=len(page.rows),
        done=len(page.rows) - len(refused),
        refused=refused[:TOLD],
        cursor=page.cursor,
    )


async def _page(here: Visit, query: Query, ids: Sequence[UUID] | None) -> Page:
    store = here.client.store
    if ids is None:
        return await store.find(query)
    found = await store.get(list(dict.fromkeys(ids)))
    return Page([row for row in found if row is not None and matches(query, row)], None)


async def _one(here: Visit, body: ActionAsked, row: JobRow) -> RefusedView | None:
    try:
        if body.action in ANEW and row.retried_as is not None:
            raise ConflictError(f"job {row.id} was done again already, as {row.retried_as}")
        await _verb(here, body)(row.id)
    except RequestError as error:
        return RefusedView(id=row.id, code=error.code, detail=str(error))
    return None


def _verb(here: Visit, body: ActionAsked) -> Callable[[UUID], Awaitable[object]]:
    client = here.client
    match body.action:
        case Verb.SUBMIT:
            return client.submit
        case Verb.CANCEL:
            return lambda job: client.cancel(job, by=here.caller.name, reason=body.reason)
        case Verb.RETRY:
            return lambda job: _again(here, client.retry(job))
        case Verb.RESUME:
            return lambda job: _again(here, client.resume(job))
        case Verb.DELETE:
            return lambda job: deleted(here, job)


async def _again(here: Visit, doing: Awaitable[Enqueued]) -> None:
    check_accepted(told(here.caller, await doing))


async def deleted(here: Visit, job_id: UUID) -> None:
    """Delete a job that has ended; one that has not is a conflict."""
    [answer] = await here.client.store.delete([job_id])
    if answer.status is Status.MISSING:
        raise NotFoundError(f"no job {job_id}")
    if not answer.applied:
        raise ConflictError(f"job {job_id} is {answer.state}; cancel it before deleting it")
