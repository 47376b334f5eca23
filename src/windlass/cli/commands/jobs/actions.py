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
from windlass.core.errors import ConflictError, NotFoundError, RequestError, StoreError
from windlass.core.job.state import State

Action = Callable[[Client, UUID], Awaitable[tuple[dict[str, Any], str]]]


def submit(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Queue held jobs."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        state = await client.submit(job)
        return {"state": state.value}, f"submitted, now {state}"

    _for_each(ids, act, (url, app), as_json=as_json)


def cancel(
    ids: JobIds,
    reason: Annotated[str | None, typer.Option(help="Stored with the job.")] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs. A running job is asked to stop and will end as canceled."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        state = await client.cancel(job, by="command line", reason=reason)
        text = "canceled" if state is State.CANCELED else "cancel requested"
        return {"state": state.value, "cleanupScheduled": state is not State.CANCELED}, text

    _for_each(ids, act, (url, app), as_json=as_json)


def retry(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Re-run finished jobs from the start, as new jobs."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        return _new_job(await client.retry(job), "retried")

    _for_each(ids, act, (url, app), as_json=as_json)


def resume(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Resume failed or canceled jobs after their last completed step, as new jobs."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        return _new_job(await client.resume(job), "resumed")

    _for_each(ids, act, (url, app), as_json=as_json)


def delete(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Delete finished jobs with their logs, permanently."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        [result] = await client.store.delete([job])
        if result.status is Status.MISSING:
            raise NotFoundError(f"no job {job}")
        if not result.applied:
            raise ConflictError(f"job {job} is {result.state}; cancel it before deleting it")
        return {"deleted": True}, "deleted"

    _for_each(ids, act, (url, app), as_json=as_json)


def _new_job(result: EnqueueResult, verb: str) -> tuple[dict[str, Any], str]:
    row = accepted_row(result)
    duplicate = row.id != result.new.id
    text = f"already {verb} as {row.id}" if duplicate else f"{verb} as {row.id}"
    return {"newId": str(row.id), "state": row.state.value, "duplicate": duplicate}, text


def _for_each(
    ids: list[str], act: Action, store: tuple[str | None, str | None], *, as_json: bool
) -> None:
    """Act on each job and print each result immediately: a failure hides no earlier result."""
    results: list[dict[str, Any]] = []

    def report(fields: dict[str, Any], text: str) -> None:
        results.append(fields)
        if as_json:
            return
        if "error" in fields:
            terminal.error(text)
        else:
            terminal.out().print(f"{fields['id']} {escape(text)}", soft_wrap=True)

    try:
        run(_act_on_all(ids, act, store, report))
    finally:
        if as_json:  # one list, complete only at the end
            terminal.print_json(results)
        if results and len(results) < len(ids):
            terminal.error(f"not attempted: {' '.join(ids[len(results) :])}")
    if any("error" in fields for fields in results):
        raise typer.Exit(terminal.FAILED)


async def _act_on_all(
    ids: list[str],
    act: Action,
    store: tuple[str | None, str | None],
    report: Callable[[dict[str, Any], str], None],
) -> None:
    async with open_client(*store) as client:
        for text in ids:
            try:
                job = await find_job(client, text)
                fields, message = await act(client, job)
            except RequestError as error:
                report({"id": text, "error": error.code, "message": str(error)}, str(error))
            except StoreError as error:  # the next jobs would fail, too
                report({"id": text, "error": error.code, "message": str(error)}, f"{text}: unknown")
                raise
            else:
                report({"id": str(job)} | fields, message)
