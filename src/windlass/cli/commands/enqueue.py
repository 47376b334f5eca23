"""`windlass enqueue`: enqueues a job from the command line."""

from __future__ import annotations

import contextlib
import difflib
import json
from typing import Annotated, Any

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import require_app
from windlass.cli.common_options import AppPath, AsJson
from windlass.cli.event_loop import run
from windlass.cli.job_follow import follow
from windlass.core.duration import to_seconds
from windlass.core.errors import InvalidArgumentError, WindlassError
from windlass.core.job.new_job import NewJob
from windlass.options import EnqueueOptions
from windlass.schemas.jobs import EnqueuedView
from windlass.stores import public_url
from windlass.task_spec import TaskSpec


def enqueue(
    task: Annotated[str, typer.Argument(help="Task name, or its last part.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="name=value; the value is JSON, otherwise text.")
    ] = None,
    *,
    app: AppPath = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job until it ends.")] = False,
    queue: Annotated[str | None, typer.Option(help="Queue, instead of the task's.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    delay: Annotated[str | None, typer.Option(help='Delay before it runs: "5m".')] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold it until windlass jobs submit.")
    ] = False,
    tag: Annotated[list[str] | None, typer.Option(help="Tag of the job; may be repeated.")] = None,
    request_id: Annotated[
        str | None, typer.Option(help="Idempotency key: repeating it returns the same job.")
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option(help="At most one active job of the task with this key.")
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option(help="Key for limits per key and fairness.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a job. Its arguments are checked against the task's signature.

    Example: windlass enqueue transcode path=in.mp4 width=640 -A tasks:app --watch
    """
    values = dict(parse_argument(text) for text in arguments or ())
    options = EnqueueOptions(
        queue=queue,
        priority=priority,
        delay=0.0 if delay is None else to_seconds(delay, "delay"),
        hold=hold,
        tags=tuple(tag or ()),
        request_id=request_id,
        unique_key=unique_key,
        limit_key=limit_key,
    )
    application = require_app(app)
    if not run(_enqueue(application, task, values, options, watch=watch, as_json=as_json)):
        raise typer.Exit(terminal.FAILED)


async def _enqueue(
    app: Windlass,
    name: str,
    values: dict[str, Any],
    options: EnqueueOptions,
    *,
    watch: bool,
    as_json: bool,
) -> bool:
    try:
        spec = find_task(app, name)
        [job] = await app.aenqueue_many([prepare_job(app, spec, values, options)])
        client = app.client()
        if watch:
            return await follow(client, job.row, as_json=as_json)
        if as_json:
            row = job.row
            with contextlib.suppress(WindlassError):  # the job is stored: print it in any case
                row = await client.get(job.id)  # with its gate
            view = EnqueuedView.from_row(row, client.codec, duplicate=job.duplicate)
            terminal.print_json(view.to_json())
        else:
            note = " (already exists)" if job.duplicate else ""
            terminal.out().print(f"{job.id} {terminal.state(job.state)}{note}", soft_wrap=True)
    finally:
        await app.aclose()
    return True


def parse_argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidArgumentError(
            f"{text!r} is not an argument; write name=value, such as width=640"
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def prepare_job(
    app: Windlass, spec: TaskSpec, values: dict[str, Any], options: EnqueueOptions
) -> NewJob:
    """Build the job. For text that looks like JSON, add to the error how to quote it."""
    try:
        return app.prepare(spec, (), values, options)
    except InvalidArgumentError as error:
        if "valid string" in str(error):
            hint = """quote text that looks like a number twice: name='"5"'"""
            raise InvalidArgumentError(f"{error} ({hint})") from None
        raise


def find_task(app: Windlass, name: str) -> TaskSpec:
    exact = app.tasks.get(name)
    if exact is not None:
        return exact
    specs = {spec.name: spec for spec in app.tasks}
    matches = [spec for full, spec in specs.items() if full.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(spec.name for spec in matches)
        raise InvalidArgumentError(f"task {name!r} is ambiguous: {names}; give the full name")
    close = difflib.get_close_matches(
        name, [*specs, *(full.rpartition(".")[2] for full in specs)], 1
    )
    hint = f"did you mean {close[0]!r}?" if close else f"its tasks: {', '.join(specs) or 'none'}"
    raise InvalidArgumentError(f"the app on {public_url(app.url)} has no task {name!r}; {hint}")
