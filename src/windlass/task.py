"""Tasks: functions decorated with `@app.task`, and groups of tasks."""

from __future__ import annotations

import inspect
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

from windlass.core.admission.limit_key import key_text
from windlass.core.codec import Codec
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import ConfigurationError
from windlass.core.job.new_job import NewJob, parse_tags
from windlass.core.schedule import MissedPolicy
from windlass.job import Job
from windlass.options import (
    NO_OPTIONS,
    EnqueueOptions,
    batch_options,
    check_known_options,
    job_ids,
    new_job,
    parse_names,
    parse_on_parent,
    task_options,
)
from windlass.process.import_path import import_problem, module_name
from windlass.schedules import Declaration, Declarations
from windlass.task_spec import Registry, TaskOptions, TaskSpec
from windlass.worker import Batch, Context
from windlass.worker.batch.batch_spec import BatchSpec

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


class Enqueuer(Protocol):
    """The parts of an app that a task needs."""

    codec: Codec

    async def aenqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]: ...
    def enqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]: ...


class Task(Generic[P, R]):
    """A function that can be enqueued. Calling it runs the function directly."""

    def __init__(
        self, container: TaskContainer, spec: TaskSpec, options: EnqueueOptions | None = None
    ) -> None:
        self._container = container
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
        """Return the task with these options for its jobs."""
        check_known_options(more, EnqueueOptions.__slots__)
        changes = dict(more)
        if "depends_on" in changes:
            changes["depends_on"] = job_ids(changes["depends_on"])
        if "tags" in changes:
            changes["tags"] = parse_tags(changes["tags"])
        if "on_parent" in changes:
            changes["on_parent"] = parse_on_parent(changes["on_parent"])
        if "limit_key" in changes:
            changes["limit_key"] = key_text(changes["limit_key"])
        if delay is not None:
            changes["delay"] = to_seconds(delay, "delay")
        if expires_in is not None:
            changes["expires_in"] = to_seconds(expires_in, "expires_in")
        return Task(self._container, self.spec, replace(self._options, **changes))

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return the job of a call without enqueuing it, for bulk enqueues."""
        return new_job(self.spec, args, kwargs, self._options, self._app.codec)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        [job] = await self._app.aenqueue_many([self.new_job(*args, **kwargs)])
        return cast("Job[R]", job)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        [job] = self._app.enqueue_many([self.new_job(*args, **kwargs)])
        return cast("Job[R]", job)

    def call(self, *args: Any, **kwargs: Any) -> Call[R]:
        """Return a call of the task for a flow; a chain prepends the previous result."""
        return Call(self._app, self.spec, self._options, args, kwargs)

    @property
    def enqueue_options(self) -> EnqueueOptions:
        """Return the options of its jobs."""
        return self._options

    @property
    def _app(self) -> Enqueuer:
        app = self._container.enqueuer
        if app is None:
            raise ConfigurationError(
                f"task {self.name!r} is in a group that is not included in an app; "
                "write `app.include(tasks)` before you enqueue it"
            )
        return app


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A task with arguments, for a flow; they are validated when the flow is enqueued."""

    app: Any
    spec: TaskSpec
    options: EnqueueOptions
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class TaskDecorator:
    """The decorator that `@app.task(…)` returns."""

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


class BatchDecorator(Generic[P, A]):
    """The decorator that `@app.task(batch=…, args=…)` returns."""

    def __init__(self, make: Callable[[Callable[..., Any]], Task[Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[[Batch[A, R]], Awaitable[None]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[[Batch[A, R]], None]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[Any, Any]:
        return self._make(function)


class TaskContainer:
    """Base of `Windlass` and `Tasks`: creates tasks and holds them."""

    def __init__(self, enqueuer: Enqueuer | None = None) -> None:
        self.enqueuer = enqueuer  # the app; None for a group that is not included in one
        self.tasks = Registry()
        self.declared = Declarations()

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
    ) -> BatchDecorator[P, A]: ...
    @overload
    def task(self, **options: Any) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Turn a function into a task: `@app.task`, or `@app.task(queue=…, max_retries=…)`.

        `name=` is the name stored with jobs, `aliases=` are its former names. With `batch=100`, one
        call processes up to 100 jobs; see `windlass.Batch`.
        """
        if function is not None:
            return self._task(function, None, (), task_options())
        name, aliases = options.pop("name", None), parse_names(options.pop("aliases", ()))
        batch = batch_options(options.pop("batch", None), options.pop("args", None), options)
        check_known_options(options, inspect.signature(task_options).parameters)
        parsed = task_options(**options)
        decorator = TaskDecorator if batch is None else BatchDecorator
        return decorator(lambda function: self._task(function, name, aliases, parsed, batch))

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
        reason = import_problem(function) if options.executor == "process" else None
        if reason is not None:
            raise ConfigurationError(f"a child process cannot import this task: {reason}")
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
        missed: MissedPolicy | Literal["skip", "last", "all"] = "last",
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Enqueue the decorated task regularly: `@app.schedule("*/5 * * * *")`, `(every="5m")`.

        `args` and `kwargs` are its arguments; `name` is by default that of the task. Workers store
        the schedule when they start, and enqueue exactly one job at each tick.
        """
        timing = {"cron": cron, "every": every, "tz": tz, "missed": missed}

        def declare(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise ConfigurationError(
                    f"{task!r:.80} is not a task; put @app.schedule above @app.task"
                )
            if self.tasks.get(task.name) is not task.spec:
                raise ConfigurationError(
                    f"task {task.name!r} belongs to another app or group; schedule it there"
                )
            call = (args, kwargs or {})
            self.declare([Declaration.of(name, task.spec, task.enqueue_options, call, timing)])
            return task

        return declare

    def declare(self, declared: Iterable[Declaration]) -> None:
        self.declared.add(*declared)


class Tasks(TaskContainer):
    """A group of tasks without an app, for modules that the app's module imports.

    `app.include(tasks)` adds them to an app; before that they can be called, but not enqueued.
    """

    def __init__(self) -> None:
        super().__init__()
        self._app_container: TaskContainer | None = None

    def join(self, app: TaskContainer) -> None:
        """Add all tasks, also future ones, to the app; raises an error if one conflicts."""
        if self._app_container is not None and self._app_container is not app:
            raise ConfigurationError(
                "this group of tasks is already included in another app; create a group per app, "
                "or close the other app first"
            )
        app.declared.check(self.declared)
        app.add(self.tasks)
        app.declare(self.declared)
        self._app_container, self.enqueuer = app, app.enqueuer

    def leave(self) -> None:
        self._app_container = self.enqueuer = None

    def add(self, specs: Iterable[TaskSpec]) -> None:
        specs = list(specs)
        if self._app_container is not None:
            self._app_container.add(specs)
        super().add(specs)

    def declare(self, declared: Iterable[Declaration]) -> None:
        declared = list(declared)
        if self._app_container is not None:
            self._app_container.declare(declared)
        super().declare(declared)
