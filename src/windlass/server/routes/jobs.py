"""Jobs: enqueue, list, count and read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response, status
from pydantic import ValidationError

from windlass.client import accepted_row, check_accepted
from windlass.core.decisions.enqueue import EnqueueResult, EnqueueStatus
from windlass.core.errors import ConflictError, NotFoundError, WindlassError
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.insights.job_graph import job_graph
from windlass.schemas.attempts import Attempts
from windlass.schemas.diagnosis import DiagnosisView
from windlass.schemas.jobs import (
    CountView,
    EnqueuedView,
    GraphView,
    JobPage,
    JobSummary,
    JobView,
)
from windlass.server.auth.scoped_enqueue import enqueue_scoped
from windlass.server.context import Ctx, PathId, RequestContext
from windlass.server.problem_details import (
    InvalidFieldsError,
    field_problems,
    invalid_field,
    problem,
)
from windlass.server.schemas import job_requests
from windlass.server.schemas.batch_results import EnqueueBatchResult, EnqueueBatchResults

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=512,
        description="Request id: a repeated request with the same value enqueues nothing.",
    ),
]


async def enqueue(
    ctx: Ctx, body: job_requests.EnqueueRequest, request: Request, key: IdempotencyKey = None
) -> Response:
    """Enqueue a job: 201 for a new job, 200 for an existing duplicate."""
    new = body.new_job(ctx.app, ctx.caller, key)
    [result] = await enqueue_scoped(ctx, [new], ctx.app.aenqueue_each)
    check_accepted(result)
    [row], duplicate = await _rows(ctx, [result]), _is_duplicate(result)
    view = EnqueuedView.from_row(row, ctx.app.codec, duplicate=duplicate)
    root = request.scope.get("root_path", "")
    return Response(  # FastAPI would validate each field of the view a second time
        view.model_dump_json(by_alias=True),
        status.HTTP_200_OK if duplicate else status.HTTP_201_CREATED,
        {"Location": f"{root}/api/jobs/{row.id}"},
        "application/json",
    )


async def enqueue_batch(
    ctx: Ctx, body: job_requests.EnqueueBatchRequest, key: IdempotencyKey = None
) -> EnqueueBatchResults:
    """Enqueue many jobs; each has its own result. An Idempotency-Key applies to each job."""
    limit = ctx.server.config.max_batch
    if len(body.jobs) > limit:
        raise invalid_field("jobs", f"{len(body.jobs):,} jobs, the limit is {limit:,}")
    results: list[EnqueueBatchResult | None] = []
    jobs: list[NewJob] = []
    for index, item in enumerate(body.jobs):
        try:
            jobs.append(_parse_item(ctx, item, None if key is None else f"{key}/{index}"))
            results.append(None)
        except WindlassError as error:
            results.append(EnqueueBatchResult(status="refused", problem=problem(error)))
    enqueued = await enqueue_scoped(ctx, jobs, ctx.app.aenqueue_each)
    rows = iter(await _rows(ctx, [item for item in enqueued if item.accepted]))
    enqueued_results = (
        _batch_result(item, next(rows) if item.accepted else None) for item in enqueued
    )
    return EnqueueBatchResults(
        results=[next(enqueued_results) if result is None else result for result in results]
    )


def _parse_item(ctx: RequestContext, item: Any, key: str | None) -> NewJob:
    try:
        body = job_requests.EnqueueRequest.model_validate(item)
    except ValidationError as error:
        raise InvalidFieldsError(*field_problems(error.errors(include_url=False))) from None
    return body.new_job(ctx.app, ctx.caller, key if body.request_id is None else None)


def _batch_result(result: EnqueueResult, row: JobRow | None) -> EnqueueBatchResult:
    if row is None:
        error = result.error or ConflictError(f"job {result.new.id} was rejected")
        conflict = result.status is EnqueueStatus.CONFLICT
        return EnqueueBatchResult(
            status="conflict" if conflict else "refused", problem=problem(error)
        )
    duplicate = _is_duplicate(result)
    return EnqueueBatchResult(
        status="duplicate" if duplicate else "created", job=JobSummary.of(row)
    )


def _is_duplicate(result: EnqueueResult) -> bool:
    """A repeated request with the same job id is no duplicate."""
    return result.existing is not None and result.existing.id != result.new.id


async def _rows(ctx: RequestContext, results: Sequence[EnqueueResult]) -> list[JobRow]:
    """Return the stored rows, with the number of parents and the gate that a job waits for.

    The row of a new job that waits for nothing is known, and is not read again.
    """
    rows = [accepted_row(result) for result in results]
    unknown = [row.id for result, row in zip(results, rows, strict=True) if not _row_known(result)]
    stored = dict(zip(unknown, await ctx.client.store.get(unknown), strict=True))
    return [stored.get(row.id) or row for row in rows]


def _row_known(result: EnqueueResult) -> bool:
    return result.new.plain and result.existing is None and not result.gates


async def list_jobs(ctx: Ctx, filters: Annotated[job_requests.ListJobsRequest, Query()]) -> JobPage:
    """List jobs, newest first."""
    query = filters.query(ctx.caller, filters.cursor)
    return JobPage.of(await ctx.client.store.find(replace(query, omit_payload=True)))


async def count(ctx: Ctx, filters: Annotated[job_requests.ListJobsRequest, Query()]) -> CountView:
    """Count matching jobs: exact up to 10,000, among the newest 100,000 jobs.

    Takes the filters of the list; `limit` and `cursor` have no effect.
    """
    return CountView.of(await ctx.client.store.insights.count(filters.query(ctx.caller)))


async def get(ctx: Ctx, job_id: PathId) -> JobView:
    """Get a job with all its data."""
    return JobView.from_row(await ctx.job(job_id), ctx.app.codec)


async def attempts(ctx: Ctx, job_id: PathId) -> Attempts:
    """List the attempts of a job, oldest first."""
    await ctx.job(job_id)
    found = await ctx.client.store.insights.attempts(job_id)
    if found is None:
        raise NotFoundError(f"no job {job_id}")
    return Attempts.of(found, ctx.app.codec)


async def graph(ctx: Ctx, job_id: PathId) -> GraphView:
    """Get the dependency graph around a job: ancestors and descendants, up to 200 jobs."""
    found = await job_graph(ctx.client.store, await ctx.job(job_id), ctx.caller.can_see)
    return GraphView.of(found)


async def why(ctx: Ctx, job_id: PathId) -> DiagnosisView:
    """Explain why a job is not running."""
    await ctx.job(job_id)
    return DiagnosisView.of(await ctx.client.why(job_id))
