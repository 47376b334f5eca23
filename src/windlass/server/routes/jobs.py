"""Jobs: enqueue them, find them, look at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response, status
from pydantic import ValidationError

from windlass.client import accepted, check_accepted
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.errors import ConflictError, NotFoundError, WindlassError
from windlass.core.job.row import JobRow, NewJob
from windlass.insights.graph import around
from windlass.server.auth.ownership import enqueue_own
from windlass.server.context import Here, Id, Visit
from windlass.server.problems import WrongFieldsError, fields_of, problem, wrong
from windlass.server.schemas import requests
from windlass.server.schemas.jobs import (
    Attempts,
    AttemptView,
    BatchAnswer,
    BatchAnswers,
    CountView,
    EnqueuedView,
    GraphView,
    JobPage,
    JobSummary,
    JobView,
    WhyView,
)

IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=512)
]


async def enqueue(
    here: Here, body: requests.NewJobAsked, request: Request, key: IdempotencyKey = None
) -> Response:
    """Enqueue a job: 201 if it is new, 200 if it was there before."""
    new = body.new_job(here.app, here.caller, key)
    [answer] = await enqueue_own(here, [new], here.app.aenqueue_each)
    check_accepted(answer)
    [row], duplicate = await _rows(here, [answer]), _duplicate(answer)
    view = EnqueuedView.seen(row, here.app.codec, duplicate=duplicate)
    root = request.scope.get("root_path", "")
    return Response(  # written here: FastAPI would check each field of the view a second time
        view.model_dump_json(by_alias=True),
        status.HTTP_200_OK if duplicate else status.HTTP_201_CREATED,
        {"Location": f"{root}/api/jobs/{row.id}"},
        "application/json",
    )


async def enqueue_batch(
    here: Here, body: requests.BatchAsked, key: IdempotencyKey = None
) -> BatchAnswers:
    """Enqueue many jobs; each has an answer of its own. An Idempotency-Key counts for each."""
    most = here.site.config.max_batch
    if len(body.jobs) > most:
        raise wrong("jobs", f"there are {len(body.jobs):,} of them, the limit is {most:,}")
    answers: list[BatchAnswer | None] = []
    jobs: list[NewJob] = []
    for place, given in enumerate(body.jobs):
        try:
            jobs.append(_read(here, given, None if key is None else f"{key}/{place}"))
            answers.append(None)
        except WindlassError as error:
            answers.append(BatchAnswer(status="refused", problem=problem(error)))
    enqueued = await enqueue_own(here, jobs, here.app.aenqueue_each)
    rows = iter(await _rows(here, [one for one in enqueued if one.accepted]))
    told = (_told(one, next(rows) if one.accepted else None) for one in enqueued)
    return BatchAnswers(answers=[next(told) if one is None else one for one in answers])


def _read(here: Visit, given: Any, key: str | None) -> NewJob:
    try:
        body = requests.NewJobAsked.model_validate(given)
    except ValidationError as error:
        raise WrongFieldsError(*fields_of(error.errors(include_url=False))) from None
    return body.new_job(here.app, here.caller, key if body.request_id is None else None)


def _told(answer: Enqueued, row: JobRow | None) -> BatchAnswer:
    if row is None:
        error = answer.error or ConflictError(f"job {answer.new.id} was refused")
        return BatchAnswer(status=answer.status.value, problem=problem(error))
    told = "duplicate" if _duplicate(answer) else "created"
    return BatchAnswer(status=told, job=JobSummary.of(row))


def _duplicate(answer: Enqueued) -> bool:
    """A repeat with the same id is answered as the first was."""
    return answer.existing is not None and answer.existing.id != answer.new.id


async def _rows(here: Visit, answers: Sequence[Enqueued]) -> list[JobRow]:
    """As they are stored: whether a job waits for others, or at a limit, only its row says.

    A new one that waits for nothing stands as it was born: it is not read again.
    """
    known = [accepted(answer) for answer in answers]
    doubtful = [row.id for answer, row in zip(answers, known, strict=True) if not _as_born(answer)]
    found = dict(zip(doubtful, await here.client.store.get(doubtful), strict=True))
    return [found.get(row.id) or row for row in known]


def _as_born(answer: Enqueued) -> bool:
    return answer.new.plain and answer.existing is None and not answer.gates


async def list_jobs(here: Here, filters: Annotated[requests.ListAsked, Query()]) -> JobPage:
    """Jobs, the newest first."""
    query = filters.query(here.caller, filters.cursor)
    page = await here.client.store.find(replace(query, bare=True))
    return JobPage(jobs=[JobSummary.of(row) for row in page.rows], cursor=page.cursor)


async def count(here: Here, filters: Annotated[requests.ListAsked, Query()]) -> CountView:
    """How many jobs match: exact up to 10,000 of them, found among the newest 100,000.

    The filters are those of a list; its `limit` and `cursor` change nothing.
    """
    return CountView.of(await here.client.store.count(filters.query(here.caller)))


async def get(here: Here, job_id: Id) -> JobView:
    """One job, with all that it carries."""
    return JobView.seen(await here.job(job_id), here.app.codec)


async def attempts(here: Here, job_id: Id) -> Attempts:
    """Every attempt of a job, the oldest first."""
    await here.job(job_id)
    found = await here.client.store.attempts(job_id)
    if found is None:
        raise NotFoundError(f"no job {job_id}")
    views: Sequence[AttemptView] = [AttemptView.seen(one, here.app.codec) for one in found]
    return Attempts(attempts=views)


async def graph(here: Here, job_id: Id) -> GraphView:
    """The jobs that a job depends on, those that depend on it, and on from there: up to 200."""
    found = await around(here.client.store, await here.job(job_id), here.caller.sees)
    return GraphView.of(found)


async def why(here: Here, job_id: Id) -> WhyView:
    """Why a job is not running, or not any more."""
    await here.job(job_id)
    return WhyView.of(await here.client.why(job_id))
