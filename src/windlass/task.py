"""Tasks in a user's hands: made of functions by `@app.task` or in a group, enqueued by name."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from windlass.client import NO_OPTIONS, EnqueueOptions
from windlass.core.admission.limit_key import as_text
from windlass.core.duration import Duration, seconds
from windlass.core.errors import ConfigurationError
from windlass.core.job.row import NewJob, tags_of
from windlass.core.schedule import Missed
from windlass.job import Job
from windlass.options import batch_of, ids_of, names_of, on_parent_of, only_known, task_options
from windlass.process.import_path import importable, module_name
from windlass.schedules import Declaration, Declarations
from windlass.task_spec import Registry, TaskOptions, TaskSpec
from windlass.worker import Batch, Context
from windlass.worker.batch.task import BatchSpec

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


class Enqueuer(Protocol):
    """What a task needs of the app it belongs to."""

    def prepare(
        self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions
    ) -> NewJob: ...
    async def aenqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]: ...
    def enqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]: ...


class Task(Generic[P, R]):
    """A function that can also be enqueued. Calling it stays a plain call."""

    def __init__(
        self, home: TaskHome, spec: TaskSpec, options: EnqueueOptions | None = None
    ) -> None:
        self._home = home
        self.spec = spec
        self._options = options or NO_OPTIONS

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.spec.function(*args, **kwargs)

    def options(
        self,
        *,
        delay: Duration | None = None,
        expires_in: Duration | None = None,
        **more: Any,
    ) -> Task[P, R]:
        """The same task with these options for its next jobs."""
        only_known(more, EnqueueOptions.__slots__)
        changes = dict(more)
        if "depends_on" in changes:
            changes["depends_on"] = ids_of(changes["depends_on"])
        if "tags" in changes:
            changes["tags"] = tags_of(changes["tags"])
        if "on_parent" in changes:
            changes["on_parent"] = on_parent_of(changes["on_parent"])
        if "limit_key" in changes:
            changes["limit_key"] = as_text(changes["limit_key"])
        if delay is not None:
            changes["delay"] = seconds(delay, "delay")
        if expires_in is not None:
            changes["expires_in"] = seconds(expires_in, "expires_in")
        return Task(self._home, self.spec, replace(self._options, **changes))

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job as it would be enqueued: for bulk."""
        return self._app.prepare(self.spec, args, kwargs, self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        [job] = await self._app.aenqueue_many([self.new_job(*args, **kwargs)])
        return cast("Job[R]", job)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        [job] = self._app.enqueue_many([self.new_job(*args, **kwargs)])
        return cast("Job[R]", job)

    def call(self, *args: Any, **kwargs: Any) -> Call[R]:
        """The task with these arguments, as a part of a flow; a chain adds one in front."""
        return Call(self._app, self.spec, self._options, args, kwargs)

    @property
    def given(self) -> EnqueueOptions:
        """The options of its next jobs."""
        return self._options

    @property
    def _app(self) -> Enqueuer:
        return self._home.app_of(self.spec)


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A task with its arguments, for a flow; they are checked when the flow is enqueued."""

    home: Any  # the app
    spec: TaskSpec
    options: EnqueueOptions
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class TaskMaker:
    """What `@app.task(…)` answers: still to be given its function."""

    def __init__(self, make: Callable[[Callable[..., Any]], Task[Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[Any, Any]:
        return self._make(function)


class BatchMaker(Generic[P, A]):
    """What `@app.task(batch=…, args=…)` answers: still to be given its function."""

    def __init__(self, make: Callable[[Callable[..., Any]], Task[Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[[Batch[A, R]], Awaitable[None]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[[Batch[A, R]], None]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[Any, Any]:
        return self._make(function)


class TaskHome(ABC):
    """Where tasks are made and found: an app, or a group that joins one."""

    def __init__(self) -> None:
        self.tasks = Registry()
        self.declared = Declarations()

    @abstractmethod
    def app_of(self, spec: TaskSpec) -> Enqueuer: ...

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R]) -> Task[P, R]: ...
    @overload
    def task(
        self, *, batch: int, args: Callable[P, A], wait: Duration = 0, **options: Any
    ) -> BatchMaker[P, A]: ...
    @overload
    def task(self, **options: Any) -> TaskMaker: ...
    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue=…, max_retries=…)`.

        `name=` is what jobs store; `aliases=` are the names it had before. With `batch=100`, one
        call gets up to so many jobs, in a `Batch`; see `windlass.Batch`.
        """
        if function is not None:
            return self._task(function, None, (), task_options())
        name, aliases = options.pop("name", None), names_of(options.pop("aliases", ()))
        batch = batch_of(options.pop("batch", None), options.pop("args", None), options)
        only_known(options, inspect.signature(task_options).parameters)
        made = task_options(**options)
        maker = TaskMaker if batch is None else BatchMaker
        return maker(lambda function: self._task(function, name, aliases, made, batch))

    def _task(
        self,
        function: Callable[..., Any],
        name: str | None,
        aliases: tuple[str, ...],
        options: TaskOptions,
        batch: Mapping[str, Any] | None = None,
    ) -> Task[Any, Any]:
        if not inspect.isroutine(function):
            raise ConfigurationError(f"{function!r} is not a function")
        reason = importable(function) if options.executor == "process" else None
        if reason is not None:
            raise ConfigurationError(f"a child process could not find this task: {reason}")
        name = name or f"{module_name(function)}.{function.__qualname__}"
        if batch is None:
            spec = TaskSpec(name, function, options, aliases)
        else:
            spec = BatchSpec(name, function, options, aliases, **batch)
        self.add([spec])
        return Task(self, spec)

    def add(self, specs: Iterable[TaskSpec]) -> None:
        self.tasks.add(*specs)

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: Duration | None = None,
        tz: str | None = None,
        missed: Missed | Literal["skip", "last", "all"] = "last",
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Enqueue the task below by itself: `@app.schedule("*/5 * * * *")`, `(every="5m")`.

        `args` and `kwargs` are what it is called with; `name` is the task's unless you give one.
        Workers store the schedule when they start, and one of them makes the job of each tick.
        """
        timing = {"cron": cron, "every": every, "tz": tz, "missed": missed}

        def declare(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise ConfigurationError(
                    f"{task!r:.80} is no task; put @app.schedule above @app.task"
                )
            if self.tasks.get(task.name) is not task.spec:
                raise ConfigurationError(f"task {task.name!r} is scheduled where it is not known")
            call = (args, kwargs or {})
            self.declare([Declaration.of(name, task.spec, task.given, call, timing)])
            return task

        return declare

    def declare(self, declared: Iterable[Declaration]) -> None:
        self.declared.add(*declared)


class Tasks(TaskHome):
    """A group of tasks without an app, for modules that the app's module imports.

    `app.include(tasks)` gives them one; until then they can be called, but not enqueued.
    """

    def __init__(self) -> None:
        super().__init__()
        self._joined: TaskHome | None = None

    def join(self, app: TaskHome) -> None:
        """Belong to the app from now on, with all tasks of now and later: all, or none."""
        if self._joined is not None and self._joined is not app:
            raise ConfigurationError(
                "this group of tasks is included in an app already; a task is enqueued to one "
                "app, so make a group for each (or close the other app first)"
            )
        app.declared.check(self.declared)
        app.add(self.tasks)
        app.declare(self.declared)
        self._joined = app

    def leave(self) -> None:
        self._joined = None

    def add(self, specs: Iterable[TaskSpec]) -> None:
        specs = list(specs)
        if self._joined is not None:
            self._joined.add(specs)
        super().add(specs)

    def declare(self, declared: Iterable[Declaration]) -> None:
        declared = list(declared)
        if self._joined is not None:
            self._joined.declare(declared)
        super().declare(declared)

    def app_of(self, spec: TaskSpec) -> Enqueuer:
        if self._joined is None:
            raise ConfigurationError(
                f"task {spec.name!r} is in a group that no app has included yet; "
                "write `app.include(tasks)` before it is enqueued"
            )
        return self._joined.app_of(spec)
