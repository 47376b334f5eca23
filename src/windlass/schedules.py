"""Schedules: declared with `@app.schedule`, and `app.schedules` at run time."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

from windlass.client import Client
from windlass.core.codec import Codec, JsonCodec
from windlass.core.duration import Duration
from windlass.core.errors import ConfigurationError, NotFoundError
from windlass.core.job.new_job import NewJob
from windlass.core.schedule import MissedPolicy, Schedule, fingerprint_data
from windlass.job import Job
from windlass.loop_thread import LoopThread
from windlass.options import EnqueueOptions, new_job
from windlass.records.schedule_records import ScheduleInfo, ScheduleRecords, make_schedule
from windlass.task_spec import TaskSpec, source_location

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A schedule declared with `@app.schedule(…)`."""

    name: str
    spec: TaskSpec
    options: EnqueueOptions
    arguments: Mapping[str, Any]  # as they are stored
    timing: Mapping[str, Any]  # cron, every, tz, missed

    @staticmethod
    def of(
        name: str | None,
        spec: TaskSpec,
        options: EnqueueOptions,
        call: tuple[Sequence[Any], Mapping[str, Any]],
        timing: Mapping[str, Any],
    ) -> Declaration:
        """Create a declaration; raises an error if it is invalid."""
        arguments = spec.signature.store(tuple(call[0]), call[1])
        declaration = Declaration(
            name=name or spec.name, spec=spec, options=options, arguments=arguments, timing=timing
        )
        declaration.schedule(JsonCodec())
        return declaration

    def schedule(self, codec: Codec) -> Schedule:
        """Return the schedule to store, with a fingerprint of the declaration."""
        job = new_job(self.spec, (), self.arguments, self.options, codec)
        schedule = make_schedule(self.name, job, **self.timing)
        data = {
            **fingerprint_data(job, self.arguments),
            "timing": schedule.timing,
            "missed": schedule.missed,
        }
        return replace(schedule, declared=codec.digest(data).hex())


class Declarations:
    """The schedules declared in code, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Declaration] = {}

    def check(self, new: Iterable[Declaration]) -> None:
        for declaration in new:
            other = self._by_name.get(declaration.name)
            if other is not None and other is not declaration:
                raise ConfigurationError(
                    f"two schedules are named {declaration.name!r}: of "
                    f"{source_location(other.spec.function)} and "
                    f"{source_location(declaration.spec.function)}; give one of them name="
                )

    def add(self, *new: Declaration) -> None:
        """Add all of them; raises an error and adds none if a name is taken."""
        self.check(new)
        self._by_name |= {declaration.name: declaration for declaration in new}

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name


class SchedulesApp(Protocol):
    """The parts of an app that `Schedules` needs."""

    @property
    def declared(self) -> Declarations: ...
    @property
    def sync(self) -> LoopThread: ...
    def client(self) -> Client: ...
    async def aenqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]: ...


class Schedules:
    """The stored schedules: declared in code, or added at run time."""

    def __init__(self, app: SchedulesApp) -> None:
        self._app = app

    async def aadd(
        self,
        name: str,
        job: NewJob,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        missed: MissedPolicy | Literal["skip", "last", "all"] = "last",
    ) -> ScheduleInfo:
        """Add a schedule that enqueues a job like this one: `task.options(…).new_job(…)`.

        The first tick is the next one from now. Raises ConflictError if the name is taken.
        """
        new = make_schedule(name, job, cron=cron, every=every, tz=tz, missed=missed)
        return await self._records.add(new)

    def add(
        self,
        name: str,
        job: NewJob,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        missed: MissedPolicy | Literal["skip", "last", "all"] = "last",
    ) -> ScheduleInfo:
        return self._call(self.aadd(name, job, cron=cron, every=every, tz=tz, missed=missed))

    async def alist(self) -> Sequence[ScheduleInfo]:
        """List all schedules by name."""
        return await self._records.list()

    def list(self) -> Sequence[ScheduleInfo]:
        return self._call(self.alist())

    async def aget(self, name: str) -> ScheduleInfo:
        return await self._explain_missing(name, self._records.get(name))

    def get(self, name: str) -> ScheduleInfo:
        return self._call(self.aget(name))

    async def apause(self, name: str) -> ScheduleInfo:
        """Enqueue no jobs until it is resumed. Ticks during the pause are dropped."""
        return await self._explain_missing(name, self._records.pause(name))

    def pause(self, name: str) -> ScheduleInfo:
        return self._call(self.apause(name))

    async def aresume(self, name: str) -> ScheduleInfo:
        """Enqueue jobs again, from the next tick on."""
        return await self._explain_missing(name, self._records.pause(name, paused=False))

    def resume(self, name: str) -> ScheduleInfo:
        return self._call(self.aresume(name))

    async def adelete(self, name: str) -> ScheduleInfo:
        """Delete it; its jobs are kept. A declared schedule returns when a worker starts."""
        return await self._explain_missing(name, self._records.delete(name))

    def delete(self, name: str) -> ScheduleInfo:
        return self._call(self.adelete(name))

    async def arun(self, name: str) -> Job[Any]:
        """Enqueue an extra job now; also while it is paused."""
        new = await self._explain_missing(name, self._records.job(name))
        [job] = await self._app.aenqueue_many([new])
        return job

    def run(self, name: str) -> Job[Any]:
        return self._call(self.arun(name))

    @property
    def _records(self) -> ScheduleRecords:
        return ScheduleRecords(self._app.client().store)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.sync.call(work)

    async def _explain_missing(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except NotFoundError as error:
            if name not in self._app.declared:
                raise
            raise NotFoundError(
                f"{error}: it is declared in code, and stored when the first worker starts"
            ) from None
