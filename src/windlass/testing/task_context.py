"""Contexts for calling one task without a worker."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import finalize

from windlass.app import Windlass
from windlass.client import accepted_row
from windlass.core.codec import Codec, JsonCodec, Purpose
from windlass.core.decisions.outcome import Failed
from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.job import Job
from windlass.loop_thread import LoopThread
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.task import Task
from windlass.task_spec import TaskSpec
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
    checkpoint_record,
    claim_one,
    get_one,
    make_failure,
    read_events,
    settle_one,
    sweep_all,
)
from windlass.testing.spy_store import run_immediate
from windlass.worker import AppParts, Batch, Context, Item
from windlass.worker.batch.batch_spec import BatchSpec
from windlass.workspace import Workspaces

A = TypeVar("A")
R = TypeVar("R")
_FIELDS = (
    "id",
    "queue",
    "priority",
    "owner",
    "team",
    "tags",
    "headers",
    "request_id",
    "unique_key",
)


class RecordingContext(Context):
    """A task context that records the events, steps and jobs of the task."""

    enqueued: list[Job[Any]]  # by `ctx.enqueue` and `ctx.aenqueue`; `ctx.then` fills `children`

    @property
    def events(self) -> list[Event]:
        """The events of the task in order, each with its decoded body in `data`."""
        run_immediate(self.flush())
        found = run_immediate(read_events(self._store, self.job.id))
        return [self._decoded(event) for event in found if event.type not in LIFECYCLE]

    def _decoded(self, event: Event) -> Event:
        if event.body is None:
            return event
        body = self._codec.decode(event.body, Purpose.EVENT)
        return replace(event, data={**event.data, **body})

    @property
    def percent(self) -> int:
        """The progress of the job in percent."""
        return self._now().percent

    @property
    def current_stage(self) -> str | None:
        """The stage that the task reported last."""
        return self._now().stage

    def _now(self) -> JobRow:
        run_immediate(self.flush())
        return run_immediate(get_one(self._store, self.job.id))

    @property
    def steps(self) -> dict[str, Any]:
        """The results of completed steps, by name."""
        [found] = run_immediate(self._store.checkpoints([self.job.id]))
        return {
            name: self._codec.decode(point.value, Purpose.CHECKPOINT)
            for name, point in found.items()
        }

    @property
    def artifacts(self) -> list[Mapping[str, Any]]:
        return [event.data for event in self.events if event.type is EventType.ARTIFACT]


def context(
    task: Task[Any, Any] | None = None,
    *,
    attempt: int | None = None,
    steps: Mapping[str, Any] | None = None,
    state: Any = None,
    cancelled: bool = False,
    **fields: Any,
) -> RecordingContext:
    """Return a context to call a task with: `await transcode(context(), path="x")`.

    `steps` are the step results of earlier attempts; `fields` are fields of the job (`owner`,
    `tags`, `headers`, …). Pass the task if it has stages, if its app has its own codec, or if an
    async test calls a sync task. The workspace directory is deleted with the context.
    """
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown:
        raise InvalidArgumentError(
            f"unknown job field {', '.join(unknown)}; use one of {', '.join(_FIELDS)}"
        )
    spec = task.spec if task is not None else None
    app = _app_of(task) if task is not None else None
    codec = app.codec if app is not None else JsonCodec()
    store = MemoryStore(clock=VirtualClock())
    row = run_immediate(_start(store, codec, _request(spec, fields), attempt, steps or {}))
    data = Path(tempfile.mkdtemp(prefix="windlass-context-"))
    jobs: list[Job[Any]] = []
    parts = _parts(app, data, jobs)
    stages = (spec.options.stages if spec is not None else None) or parts.stages
    loop, thread = _loop(spec, app)
    ctx = RecordingContext(row, store, codec, loop, stages, parts=parts, state=state)
    ctx.enqueued = jobs
    ctx.cancelled = cancelled
    finalize(ctx, shutil.rmtree, data, ignore_errors=True)
    if thread is not None:
        finalize(ctx, loop.call_soon_threadsafe, loop.stop)
    return ctx


def batch(task: Task[Any, R], *args: A, **fields: Any) -> Batch[A, R]:
    """Return a batch to call a batch task with: `await index(batch(index, Page("x"), Page("y")))`.

    Each item has its own context, created by `context(task, **fields)`. Afterwards each item has
    `settled`, `result` and `error`.
    """
    if not isinstance(task.spec, BatchSpec):
        raise InvalidArgumentError(f"{task.name!r} is not a batch task; call it with context()")
    return Batch([Item(argument, context(task, **fields)) for argument in args])


def _request(spec: TaskSpec | None, fields: Mapping[str, Any]) -> NewJob:
    values: dict[str, Any] = {"id": uuid7(), "task": "test.context"}
    if spec is not None:
        options = spec.options
        values |= {"task": spec.name, "queue": options.queue, "priority": options.priority}
        values["policy"] = options.policy
    return NewJob(**(values | dict(fields)))


async def _start(
    store: Store, codec: Codec, new: NewJob, attempt: int | None, steps: Mapping[str, Any]
) -> JobRow:
    """Return the attempt's row. Earlier attempts failed; the first one completed the steps."""
    wanted = attempt if attempt is not None else 2 if steps else 1
    if wanted < 1 or (steps and wanted == 1):
        raise InvalidArgumentError(
            f"attempt is {wanted}; it must be at least 1, or at least 2 with steps, "
            "because an earlier attempt completed them"
        )
    policy = replace(new.policy, max_retries=max(new.policy.max_retries, wanted))
    [result] = await store.enqueue([replace(new, policy=policy)])
    accepted_row(result)
    row = await claim_one(store, new.queue)
    done = [(name, codec.encode(value, Purpose.CHECKPOINT)) for name, value in steps.items()]
    if done:
        await append_records(
            store, row, *(checkpoint_record(n, *step) for n, step in enumerate(done, 1))
        )
    while row.attempt < wanted:
        await settle_one(store, row, Failed(failure=make_failure(), delay=0.0))
        await sweep_all(store)
        row = await claim_one(store, new.queue)
    return row


def _app_of(task: Task[Any, Any]) -> Windlass | None:
    """Return the task's app, or None for a group that no app includes yet."""
    try:
        app = task._app  # noqa: SLF001 - no public name for it
    except ConfigurationError:
        return None
    return app if isinstance(app, Windlass) else None


def _parts(app: Windlass | None, data: Path, jobs: list[Job[Any]]) -> AppParts:
    """Return the app's parts, with temporary workspaces and enqueues into a memory store.

    Jobs never go to a store that workers read from.
    """
    parts = app.parts if app is not None else AppParts()
    memory_app = app if app is not None and app.url.startswith("memory:") else None
    target = memory_app or Windlass("memory:", codec=app.codec if app is not None else None)

    async def enqueue(new: list[NewJob]) -> list[Job[Any]]:
        if memory_app is None:
            new = [parts.middleware.enqueue(job) for job in new]
        handles = await target.aenqueue_many(new)
        jobs.extend(handles)
        return handles

    return replace(parts, workspaces=Workspaces(data), enqueue=enqueue)


def _loop(
    spec: TaskSpec | None, app: Windlass | None
) -> tuple[asyncio.AbstractEventLoop, LoopThread | None]:
    """Return the running loop for async tasks, or the loop of another thread for sync tasks."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not None and (spec is None or spec.is_async):
        return running, None
    if app is not None:
        return app.sync.loop, None
    thread = LoopThread()
    return thread.loop, thread
