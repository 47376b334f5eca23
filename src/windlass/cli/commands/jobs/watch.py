"""`windlass jobs watch` and `logs`: a job's events, live or stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

import typer

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, JobId, Url
from windlass.cli.event_loop import run
from windlass.cli.event_printer import EventPrinter
from windlass.cli.job_follow import follow
from windlass.cli.job_lookup import find_job
from windlass.cli.store_connection import open_client
from windlass.client import Client
from windlass.core.event import Event


def watch(job: JobId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Follow a job until it ends, with a progress bar. Exit code 1 if it did not succeed."""
    if not run(_watch(job, url, app, as_json=as_json)):
        raise typer.Exit(terminal.FAILED)


async def _watch(job: str, url: str | None, app: str | None, *, as_json: bool) -> bool:
    async with open_client(url, app) as client:
        row = await client.get(await find_job(client, job))
        return await follow(client, row, as_json=as_json)


def logs(
    job: JobId,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new events until the job ends.")
    ] = False,
    after: Annotated[int, typer.Option(min=0, help="Only events after this number.")] = 0,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Print a job's log. With --json, one event per line."""
    run(_logs(job, after, (url, app), follow=follow, as_json=as_json))


async def _logs(
    job: str, after: int, store: tuple[str | None, str | None], *, follow: bool, as_json: bool
) -> None:
    async with open_client(*store) as client:
        row = await client.get(await find_job(client, job))
        events = client.events(row.id, after) if follow else _stored_events(client, row.id, after)
        printer = EventPrinter(client, row, after, terminal.out(), as_json=as_json)
        async for event in events:
            await printer.print(event)


async def _stored_events(client: Client, job: UUID, after: int) -> AsyncIterator[Event]:
    """Yield all stored events without waiting for more."""
    while (page := await client.store.events(job, after)) is not None and page.events:
        for event in page.events:
            yield event
        after = page.events[-1].seq
