"""`windlass jobs submit|cancel|retry|resume|delete`, each on one or more jobs.

A refused job does not stop the others; the exit code is then 1. A store failure ends the command
with exit code 3, after it has reported the results so far and the jobs that were not attempted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, JobIds, Url
from windlass.cli.event_loop import run
from windlass.cli.job_lookup import find_job
from windlass.cli.store_connection import open_client
from windlass.client import Client, accepted_row
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import Status
from windlass.core.errors import (
    ConflictError,
    NotFoundError,
    RequestError,
    StoreError,
    WindlassError,
)
from windlass.core.job.state import State
from windlass.schemas.job_actions import CancelView, JobStateView
from windlass.schemas.jobs import EnqueuedView

Result = tuple[dict[str, Any], str]  # for scripts, for people
Action = Callable[[Client, UUID], Awaitable[Result]]


def submit(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Queue held jobs."""

    async def act(client: Client, job: UUID) -> Result:
        state = await client.submit(job)
        return JobStateView(id=job, state=state).to_json(), f"submitted, now {state}"

    _for_each(ids, act, (url, app), as_json=as_json)


def cancel(
    ids: JobIds,
    reason: Annotated[str | None, typer.Option(help="Stored with the job.")] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs. A running job is asked to stop and will end as canceled."""

    async def act(client: Client, job: UUID) -> Result:
        state = await client.cancel(job, by="command line", reason=reason)
        text = "canceled" if state is State.CANCELED else "cancel requested"
        return CancelView.of(job, state).to_json(), text

    _for_each(ids, act, (url, app), as_json=as_json)


def retry(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Re-run finished jobs from the start, as new jobs."""

    async def act(client: Client, job: UUID) -> Result:
        return _new_job(client, await client.retry(job), "retried")

    _for_each(ids, act, (url, app), as_json=as_json)


def resume(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Resume failed or canceled jobs after their last completed step, as new jobs."""

    async def act(client: Client, job: UUID) -> Result:
        return _new_job(client, await client.resume(job), "resumed")

    _for_each(ids, act, (url, app), as_json=as_json)


def delete(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Delete finished jobs with their logs, permanently."""

    async def act(client: Client, job: UUID) -> Result:
        [result] = await client.store.delete([job])
        if result.status is Status.MISSING:
            raise NotFoundError(f"no job {job}")
        if not result.applied:
            raise ConflictError(f"job {job} is {result.state}; cancel it before deleting it")
        return {"id": str(job), "deleted": True}, "deleted"

    _for_each(ids, act, (url, app), as_json=as_json)


def _new_job(client: Client, result: EnqueueResult, verb: str) -> Result:
    row = accepted_row(result)
    duplicate = row.id != result.new.id
    text = f"already {verb} as {row.id}" if duplicate else f"{verb} as {row.id}"
    return EnqueuedView.from_row(row, client.codec, duplicate=duplicate).to_json(), text


def _for_each(
    ids: list[str], act: Action, store: tuple[str | None, str | None], *, as_json: bool
) -> None:
    """Act on each job and print each result immediately: a failure hides no earlier result."""
    results: list[dict[str, Any]] = []
    refused: list[str] = []

    def report_result(job: UUID, result: Result) -> None:
        results.append(result[0])
        if not as_json:
            terminal.out().print(f"{job} {escape(result[1])}", soft_wrap=True)

    def report_refused(given: str, error: WindlassError, text: str) -> None:
        results.append({"id": given, "code": error.code, "detail": str(error)})
        refused.append(given)
        if not as_json:
            terminal.error(text)

    try:
        run(_act_on_all(ids, act, store, report_result, report_refused))
    finally:
        if as_json:  # one list, complete only at the end
            terminal.print_json(results)
        if results and len(results) < len(ids):
            terminal.error(f"not attempted: {' '.join(ids[len(results) :])}")
    if refused:
        raise typer.Exit(terminal.FAILED)


async def _act_on_all(
    ids: list[str],
    act: Action,
    store: tuple[str | None, str | None],
    report_result: Callable[[UUID, Result], None],
    report_refused: Callable[[str, WindlassError, str], None],
) -> None:
    async with open_client(*store) as client:
        for text in ids:
            try:
                job = await find_job(client, text)
                result = await act(client, job)
            except RequestError as error:
                report_refused(text, error, str(error))
            except StoreError as error:  # the next jobs would fail, too
                report_refused(text, error, f"{text}: unknown")
                raise
            else:
                report_result(job, result)
