"""`windlass jobs submit|cancel|retry|resume|delete`: each on one job or many.

One that is refused does not keep the others from being done; the exit code then is 1. A store that
fails on the way ends it with 3, after telling what was done until then and what was not tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, JobIds, Url, opened, run, which
from windlass.client import Client, accepted
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Status
from windlass.core.errors import ConflictError, NotFoundError, RequestError, StoreError
from windlass.core.job.state import State

Act = Callable[[Client, UUID], Awaitable[tuple[dict[str, Any], str]]]


def submit(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Queue jobs that were held."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        state = await client.submit(job)
        return {"state": state.value}, f"submitted, now {state}"

    _each(ids, act, (url, app), as_json=as_json)


def cancel(
    ids: JobIds,
    reason: Annotated[str | None, typer.Option(help="Kept with the job.")] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs. A running one is told to stop; it ends as canceled whatever it does."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        state = await client.cancel(job, by="command line", reason=reason)
        told = "canceled" if state is State.CANCELED else "cancel requested; its worker is told"
        return {"state": state.value, "cleanupScheduled": state is not State.CANCELED}, told

    _each(ids, act, (url, app), as_json=as_json)


def retry(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Do finished jobs again from their beginning, as new jobs."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        return _as_new(await client.retry(job), "retried")

    _each(ids, act, (url, app), as_json=as_json)


def resume(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Go on with failed or canceled jobs after their last completed step, as new jobs."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        return _as_new(await client.resume(job), "resumed")

    _each(ids, act, (url, app), as_json=as_json)


def delete(ids: JobIds, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Delete finished jobs with their logs, for good."""

    async def act(client: Client, job: UUID) -> tuple[dict[str, Any], str]:
        [answer] = await client.store.delete([job])
        if answer.status is Status.MISSING:
            raise NotFoundError(f"no job {job}")
        if not answer.applied:
            raise ConflictError(f"job {job} is {answer.state}; cancel it before deleting it")
        return {"deleted": True}, "deleted"

    _each(ids, act, (url, app), as_json=as_json)


def _as_new(answer: Enqueued, verb: str) -> tuple[dict[str, Any], str]:
    row = accepted(answer)
    duplicate = row.id != answer.new.id
    told = f"is under way already as {row.id}" if duplicate else f"{verb} as {row.id}"
    return {"newId": str(row.id), "state": row.state.value, "duplicate": duplicate}, told


def _each(ids: list[str], act: Act, place: tuple[str | None, str | None], *, as_json: bool) -> None:
    """Each answer is told when it comes: what was done is known, whatever happens to the rest."""
    told: list[dict[str, Any]] = []

    def tell(facts: dict[str, Any], words: str) -> None:
        told.append(facts)
        if as_json:
            return
        if "error" in facts:
            terminal.complain(words)
        else:
            terminal.out().print(f"{facts['id']} {escape(words)}", soft_wrap=True)

    try:
        run(_all(ids, act, place, tell))
    finally:
        if as_json:  # one list, which is complete only at the end
            terminal.print_json(told)
        if told and len(told) < len(ids):
            terminal.complain(f"not tried: {' '.join(ids[len(told) :])}")
    if any("error" in facts for facts in told):
        raise typer.Exit(terminal.FAILED)


async def _all(
    ids: list[str],
    act: Act,
    place: tuple[str | None, str | None],
    tell: Callable[[dict[str, Any], str], None],
) -> None:
    async with opened(*place) as client:
        for text in ids:
            try:
                job = await which(client, text)
                facts, words = await act(client, job)
            except RequestError as error:
                tell({"id": text, "error": error.code, "message": str(error)}, str(error))
            except StoreError as error:  # the next would wait in vain as long
                tell({"id": text, "error": error.code, "message": str(error)}, f"{text}: unknown")
                raise
            else:
                tell({"id": str(job)} | facts, words)
