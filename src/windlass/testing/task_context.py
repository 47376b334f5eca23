"""Calling a task alone: with a real context, of a job that is in nobody's queue."""

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
from windlass.client import accepted
from windlass.core.codec import Codec, JsonCodec, Purpose
from windlass.core.decisions.outcome import Failed
from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.core.ids import uuid7
from windlass.core.job.row import JobRow, NewJob
from windlass.job import Job
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.sync import LoopThread
from windlass.task import Task
from windlass.task_spec import TaskSpec
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    claim_one,
    get_one,
    make_failure,
    read_events,
    say,
    settle_one,
    step_done,
    sweep_all,
)
from windlass.testing.store_spy import at_once
from windlass.worker import Batch, Context, Item, Kit
from windlass.worker.batch.task import BatchSpec
from windlass.workspace import Workspaces

A = TypeVar("A")
R = TypeVar("R")
_FACTS = ("id", "queue", "priority", "owner", "team", "tags", "headers", "request_id", "unique_key")


class LoneContext(Context):
    """A task's context, and what the task said by it."""

    enqueued: list[Job[Any]]  # by `ctx.enqueue` and `ctx.aenqueue`; `children` are those of `then`

    @property
    def events(self) -> list[Event]:
        """What the task said, in order, each event with all it says in its `data`."""
        at_once(self.flush())
        found = at_once(read_events(self._store, self.job.id))
        return [self._told(event) for event in found if event.type not in LIFECYCLE]

    def _told(self, event: Event) -> Event:
        if event.body is None:
            return event
        said = self._codec.decode(event.body, Purpose.EVENT)
        return replace(event, data={**event.data, **said})

    @property
    def percent(self) -> int:
        """How far the job is."""
        return self._now().percent

    @property
    def at_stage(self) -> str | None:
        """The stage that the task said last."""
        return self._now().stage

    def _now(self) -> JobRow:
        at_once(self.flush())
        return at_once(get_one(self._store, self.job.id))

    @property
    def steps(self) -> dict[str, Any]:
        """The results of the steps that are completed, by name."""
        [found] = at_once(self._store.checkpoints([self.job.id]))
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
    **facts: Any,
) -> LoneContext:
    """A context to call a task with: `await transcode(context(), path="x")`.

    `steps` are the results that earlier attempts left; `facts` are the job's own (`owner`, `tags`,
    `headers`, …). Name the task if it has stages or its app a codec of its own, and whenever it is
    a sync one called in an async test. Its workspace is a directory that goes with the context.
    """
    unknown = sorted(set(facts) - set(_FACTS))
    if unknown:
        raise InvalidArgumentError(
            f"{', '.join(unknown)}: no fact about a job; known are {', '.join(_FACTS)}"
        )
    spec = task.spec if task is not None else None
    app = _app_of(task) if task is not None else None
    codec = app.codec if app is not None else JsonCodec()
    store = MemoryStore(clock=VirtualClock())
    row = at_once(_start(store, codec, _request(spec, facts), attempt, steps or {}))
    data = Path(tempfile.mkdtemp(prefix="windlass-alone-"))
    jobs: list[Job[Any]] = []
    kit = _kit(app, data, jobs)
    stages = (spec.options.stages if spec is not None else None) or kit.stages
    loop, thread = _loop(spec, app)
    made = LoneContext(row, store, codec, loop, stages, kit=kit, state=state)
    made.enqueued = jobs
    made.cancelled = cancelled
    finalize(made, shutil.rmtree, data, ignore_errors=True)
    if thread is not None:
        finalize(made, loop.call_soon_threadsafe, loop.stop)
    return made


def batch(task: Task[Any, R], *args: A, **about: Any) -> Batch[A, R]:
    """A batch to call a batch task with: `await index(batch(index, Page("x"), Page("y")))`.

    Each item has a context of its own, made as `context(task, **about)`. Afterwards each says
    whether it is `settled`, its `result` and its `error`.
    """
    if not isinstance(task.spec, BatchSpec):
        raise InvalidArgumentError(f"{task.name!r} is no batch task; call it with context()")
    return Batch([Item(one, context(task, **about)) for one in args])


def _request(spec: TaskSpec | None, facts: Mapping[str, Any]) -> NewJob:
    values: dict[str, Any] = {"id": uuid7(), "task": "a task alone"}
    if spec is not None:
        options = spec.options
        values |= {"task": spec.name, "queue": options.queue, "priority": options.priority}
        values["policy"] = options.policy
    return NewJob(**(values | dict(facts)))


async def _start(
    store: Store, codec: Codec, new: NewJob, attempt: int | None, steps: Mapping[str, Any]
) -> JobRow:
    """The attempt's row: all attempts before it failed, and the first completed the steps."""
    wanted = attempt if attempt is not None else 2 if steps else 1
    if wanted < 1 or (steps and wanted == 1):
        raise InvalidArgumentError(
            f"attempt is {wanted}; it is 1 or more, and 2 or more with steps, "
            "which an earlier attempt must have completed"
        )
    policy = replace(new.policy, max_retries=max(new.policy.max_retries, wanted))
    [answer] = await store.enqueue([replace(new, policy=policy)])
    accepted(answer)
    row = await claim_one(store, new.queue)
    done = [(name, codec.encode(value, Purpose.CHECKPOINT)) for name, value in steps.items()]
    if done:
        await say(store, row, *(step_done(n, *step) for n, step in enumerate(done, 1)))
    while row.attempt < wanted:
        await settle_one(store, row, Failed(failure=make_failure(), delay=0.0))
        await sweep_all(store)
        row = await claim_one(store, new.queue)
    return row


def _app_of(task: Task[Any, Any]) -> Windlass | None:
    """None for a group that no app has included yet: it can be called all the same."""
    try:
        app = task._app  # noqa: SLF001 - a test looks deeper than users of the task need to
    except ConfigurationError:
        return None
    return app if isinstance(app, Windlass) else None


def _kit(app: Windlass | None, data: Path, jobs: list[Job[Any]]) -> Kit:
    """The app's own, but for where things go: never to a store that others work from."""
    kit = app.kit if app is not None else Kit()
    here = app if app is not None and app.url.startswith("memory:") else None
    home = here or Windlass("memory:", codec=app.codec if app is not None else None)

    async def enqueue(new: list[NewJob]) -> list[Job[Any]]:
        asked = new if here is not None else [kit.middleware.enqueue(one) for one in new]
        handles = await home.aenqueue_many(asked)
        jobs.extend(handles)
        return handles

    return replace(kit, workspaces=Workspaces(data), enqueue=enqueue)


def _loop(
    spec: TaskSpec | None, app: Windlass | None
) -> tuple[asyncio.AbstractEventLoop, LoopThread | None]:
    """The loop that runs here, for async tasks; sync ones wait for one on another thread."""
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
