"""`windlass enqueue`: put in a job from the command line, and watch it if you like."""

from __future__ import annotations

import difflib
import json
from typing import Annotated, Any

import typer

from windlass.app import Windlass
from windlass.cli import job_format, terminal
from windlass.cli.job_follow import follow
from windlass.cli.store_options import AppPath, AsJson, run, the_app
from windlass.client import EnqueueOptions
from windlass.core.duration import seconds
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.row import NewJob
from windlass.stores import public_url
from windlass.task_spec import TaskSpec


def enqueue(
    task: Annotated[str, typer.Argument(help="The task's name, or the last part of it.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="name=value; the value is JSON, or else text.")
    ] = None,
    *,
    app: AppPath = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job until it ends.")] = False,
    queue: Annotated[str | None, typer.Option(help="Another queue than the task's.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    delay: Annotated[str | None, typer.Option(help='Run no sooner than after this: "5m".')] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Keep it until jobs submit.")] = False,
    tag: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    request_id: Annotated[
        str | None, typer.Option(help="The same id again is the same job, not another.")
    ] = None,
    unique_key: Annotated[
        str | None, typer.Option(help="One active job of the task with this key.")
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option(help="Limits per key count by it, and keys take turns.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put in a job. Its arguments are checked against the task's signature.

    Example: windlass enqueue transcode path=in.mp4 width=640 -A tasks:app --watch
    """
    values = dict(argument(text) for text in arguments or ())
    options = EnqueueOptions(
        queue=queue,
        priority=priority,
        delay=0.0 if delay is None else seconds(delay, "delay"),
        hold=hold,
        tags=tuple(tag or ()),
        request_id=request_id,
        unique_key=unique_key,
        limit_key=limit_key,
    )
    application = the_app(app)
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
        [job] = await app.aenqueue_many([prepared(app, spec, values, options)])
        client = app.client()
        if watch:
            return await follow(client, job.row, as_json=as_json)
        if as_json:
            terminal.print_json(job_format.summary(job.row) | {"duplicate": job.duplicate})
        else:
            again = " (it was there already)" if job.duplicate else ""
            terminal.out().print(f"{job.id} {terminal.state(job.state)}{again}", soft_wrap=True)
    finally:
        await app.aclose()
    return True


def argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidArgumentError(f"{text!r} is no argument; write name=value, as width=640")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def prepared(
    app: Windlass, spec: TaskSpec, values: dict[str, Any], options: EnqueueOptions
) -> NewJob:
    """Say how to write a text that looks like JSON, which is what goes wrong here and only here."""
    try:
        return app.prepare(spec, (), values, options)
    except InvalidArgumentError as error:
        if "valid string" in str(error):
            hint = """a text that looks like a number needs quotes of its own: name='"5"'"""
            raise InvalidArgumentError(f"{error} ({hint})") from None
        raise


def find_task(app: Windlass, name: str) -> TaskSpec:
    exact = app.tasks.get(name)
    if exact is not None:
        return exact
    known = {spec.name: spec for spec in app.tasks}
    ending = [spec for full, spec in known.items() if full.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        names = ", ".join(spec.name for spec in ending)
        raise InvalidArgumentError(f"task {name!r} may be {names}; give its whole name")
    close = difflib.get_close_matches(name, [*known, *(n.rpartition(".")[2] for n in known)], 1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
    raise InvalidArgumentError(f"the app on {public_url(app.url)} has no task {name!r}; {hint}")
