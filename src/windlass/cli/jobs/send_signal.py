"""`windlass jobs signal`: give a job what it waits for."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import UUID

import typer

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, JobId, Url, opened, run, which
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import State


def signal(
    job: JobId,
    name: Annotated[str, typer.Argument(help="What the task waits for by ctx.wait_for(name).")],
    value: Annotated[str, typer.Argument(help="What it is answered, as JSON.")] = "null",
    *,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Give a job the signal that it waits for, or will wait for. The first of a name stays."""
    job_id, state = run(_signal(job, name, _parsed(value), (url, app)))
    if as_json:
        terminal.print_json({"id": str(job_id), "signal": name, "state": state.value})
    else:
        terminal.out().print(f"{job_id} has the signal, now {state}", soft_wrap=True)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidArgumentError(
            f"the value {text!r} is no JSON; a text needs quotes of its own: '\"yes\"'"
        ) from None


async def _signal(
    job: str, name: str, value: Any, place: tuple[str | None, str | None]
) -> tuple[UUID, State]:
    async with opened(*place) as client:
        job_id = await which(client, job)
        return job_id, await client.signal(job_id, name, value)
