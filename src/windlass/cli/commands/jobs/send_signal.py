"""`windlass jobs signal`: sends a signal to a job."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import UUID

import typer

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, JobId, Url
from windlass.cli.event_loop import run
from windlass.cli.job_lookup import find_job
from windlass.cli.store_connection import open_client
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import State


def signal(
    job: JobId,
    name: Annotated[str, typer.Argument(help="Signal name, as in ctx.wait_for(name).")],
    value: Annotated[str, typer.Argument(help="Value, as JSON.")] = "null",
    *,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a job, also before it waits. Only the first signal of a name is kept."""
    job_id, state = run(_signal(job, name, _parsed(value), (url, app)))
    if as_json:
        terminal.print_json({"id": str(job_id), "signal": name, "state": state.value})
    else:
        terminal.out().print(f"{job_id} signal sent, now {state}", soft_wrap=True)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidArgumentError(
            f"the value {text!r} is not valid JSON; quote text twice: '\"yes\"'"
        ) from None


async def _signal(
    job: str, name: str, value: Any, store: tuple[str | None, str | None]
) -> tuple[UUID, State]:
    async with open_client(*store) as client:
        job_id = await find_job(client, job)
        return job_id, await client.signal(job_id, name, value)
