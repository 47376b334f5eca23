"""Schedules in a user's hands: declared above a task, and `app.schedules` at run time."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

from windlass.client import Client, EnqueueOptions
from windlass.core.duration import Duration
from windlass.core.errors import ConfigurationError, NotFoundError
from windlass.core.job.row import NewJob
from windlass.core.schedule import Missed, Schedule, facts_of
from windlass.job import Job
from windlass.schedule_records import Planned, Timetable, plan
from windlass.sync import LoopThread
from windlass.task_spec import TaskSpec, where

T = TypeVar("T")
_NO_STORE: Any = None  # where a job is only prepared, nothing is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What `@app.schedule(…)` says of a task. The job of a tick is made when there is an app."""

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
        """Everything is checked here, where it is declared."""
        arguments = spec.signature.store(tuple(call[0]), call[1])
        made = Declaration(
            name=name or spec.name, spec=spec, options=options, arguments=arguments, timing=timing
        )
        made.schedule(Client(_NO_STORE))
        return made

    def schedule(self, client: Client) -> Schedule:
        """As a store keeps it, with a fingerprint of all that it says."""
        job = client.prepare(self.spec, (), self.arguments, self.options)
        made = plan(self.name, job, **self.timing)
        told = {**facts_of(job, self.arguments), "timing": made.timing, "missed": made.missed}
        return replace(made, declared=client.codec.digest(told).hex())


class Declarations:
    """The schedules that code declares, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Declaration] = {}

    def check(self, new: Iterable[Declaration]) -> None:
        for one in new:
            other = self._known.get(one.name)
            if other is not None and other is not one:
                raise ConfigurationError(
                    f"two schedules are named {one.name!r}: of {where(other.spec.function)} and "
                    f"{where(one.spec.function)}; give one of them name="
                )

    def add(self, *new: Declaration) -> None:
        """All of them, or none if a name is taken."""
        self.check(new)
        self._known |= {one.name: one for one in new}

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self._known.values())

    def __contains__(self, name: str) -> bool:
        return name in self._known


class Home(Protocol):
    """What schedules need of the app they belong to."""

    @property
    def declared(self) -> Declarations: ...
    @property
    def sync(self) -> LoopThread: ...
    def client(self) -> Client: ...
    async def aenqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]: ...


class Schedules:
    """The schedules that are stored, whoever made them: code, a program or a person."""

    def __init__(self, app: Home) -> None:
        self._app = app

    async def aadd(
        self,
        name: str,
        job: NewJob,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        missed: Missed | Literal["skip", "last", "all"] = "last",
    ) -> Planned:
        """Make a job like this one at each tick: `task.options(…).new_job(…)` is one.

        The first tick is the first one after now. A name that is taken is a ConflictError.
        """
        new = plan(name, job, cron=cron, every=every, tz=tz, missed=missed)
        return await self._timetable.add(new)

    def add(
        self,
        name: str,
        job: NewJob,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        missed: Missed | Literal["skip", "last", "all"] = "last",
    ) -> Planned:
        return self._call(self.aadd(name, job, cron=cron, every=every, tz=tz, missed=missed))

    async def alist(self) -> Sequence[Planned]:
        """All of them, by name."""
        return await self._timetable.list()

    def list(self) -> Sequence[Planned]:
        return self._call(self.alist())

    async def aget(self, name: str) -> Planned:
        return await self._known(name, self._timetable.get(name))

    def get(self, name: str) -> Planned:
        return self._call(self.aget(name))

    async def apause(self, name: str) -> Planned:
        """Make no jobs until it is resumed; the ticks of a pause do not come back."""
        return await self._known(name, self._timetable.pause(name))

    def pause(self, name: str) -> Planned:
        return self._call(self.apause(name))

    async def aresume(self, name: str) -> Planned:
        """Make jobs again, from the next tick on."""
        return await self._known(name, self._timetable.pause(name, paused=False))

    def resume(self, name: str) -> Planned:
        return self._call(self.aresume(name))

    async def adelete(self, name: str) -> Planned:
        """Forget it; its jobs stay. What code declares comes back with the next worker."""
        return await self._known(name, self._timetable.delete(name))

    def delete(self, name: str) -> Planned:
        return self._call(self.adelete(name))

    async def arun(self, name: str) -> Job[Any]:
        """Enqueue a job of it now, beside its ticks; also while it is paused."""
        new = await self._known(name, self._timetable.job(name))
        [job] = await self._app.aenqueue_many([new])
        return job

    def run(self, name: str) -> Job[Any]:
        return self._call(self.arun(name))

    @property
    def _timetable(self) -> Timetable:
        return Timetable(self._app.client().store)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.sync.call(work)

    async def _known(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except NotFoundError as error:
            if name not in self._app.declared:
                raise
            raise NotFoundError(
                f"{error} is stored yet: it is declared in code, and a worker that starts stores it"
            ) from None
