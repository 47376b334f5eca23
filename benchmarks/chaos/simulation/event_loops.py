"""Event loops in virtual time, and their scheduler.

Each loop stands for one thread of one simulated process. The scheduler runs one step of one loop at
a time, chosen by the seed among the ready loops. Without a ready loop, time jumps to the next
timer. Nothing here reads a real clock, a socket or an object's address, so a seed repeats a whole
run.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from itertools import count
from random import Random
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
NEVER = float("inf")
CLEANUP_TIMEOUT = 60.0


class _Future(asyncio.Future[Any]):
    """Makes the order of sets of futures the same in each run."""

    def __init__(self, *, loop: Loop) -> None:
        super().__init__(loop=loop)
        self._number = loop.number()

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    def __init__(self, work: Coroutine[Any, Any, Any], *, loop: Loop, **more: Any) -> None:
        self.number = loop.number()
        super().__init__(work, loop=loop, **more)

    def __hash__(self) -> int:
        return self.number


class _NoSelector:
    """A selector without file descriptors."""

    def select(self, _: float | None) -> list[Any]:
        return []


class Loop(asyncio.BaseEventLoop):
    """The loop runs no step before `frozen_until`; infinity means a dead process."""

    _selector = _NoSelector()
    # Attributes of the base class, for the type checker.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _run_once: Callable[[], None]

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.number = world.number
        self.frozen_until = 0.0
        self.errors: list[dict[str, Any]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def _make_task(
        self, _: object, work: Any, context: Context | None = None, **more: Any
    ) -> asyncio.Task[Any]:
        return _Task(work, loop=self, context=context, **more)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def time(self) -> float:
        return self._world.now

    def run_in_executor(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError(
            "a simulated process has no threads, because the seed could not order them"
        )

    def _write_to_self(self) -> None:
        """The loop never blocks in a system call."""

    def _process_events(self, _: object) -> None:
        """The loop has no file descriptors."""

    @property
    def next_at(self) -> float:
        """The time of the next callback, or infinity."""
        if self._ready:
            return self.frozen_until
        return max(self._scheduled[0].when(), self.frozen_until) if self._scheduled else NEVER

    def step(self) -> None:
        """Run one iteration: callbacks that are ready now; later ones wait for the next."""
        outer = _get_running_loop()
        _set_running_loop(self)
        try:
            self._run_once()
        finally:
            _set_running_loop(outer)


class World:
    """All loops, the virtual time, and the random generator of the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.loops: list[Loop] = []
        self.number = count().__next__

    def loop(self) -> Loop:
        made = Loop(self)
        self.loops.append(made)
        return made

    def run(self, work: Coroutine[Any, Any, T], loop: Loop) -> T:
        """Run all loops until this coroutine is done."""
        task = loop.create_task(work)
        while not task.done():
            self._step(self.loops)
        return task.result()

    def _step(self, loops: Sequence[Loop]) -> None:
        ready = self._due(loops)
        if not ready:
            soonest = min(loop.next_at for loop in loops)
            if soonest == NEVER:
                raise RuntimeError("deadlock: no loop has a timer or a ready callback")
            self.now = max(self.now, soonest)
            ready = self._due(loops)
        self.steps += 1
        self.random.choice(ready).step()

    def _due(self, loops: Sequence[Loop]) -> list[Loop]:
        """Return the ready loops; fast, because it runs at every step."""
        now = self.now
        return [
            loop
            for loop in loops
            if loop.frozen_until <= now
            and (loop._ready or (loop._scheduled and loop._scheduled[0]._when <= now))  # type: ignore[attr-defined]  # noqa: SLF001
        ]

    def close_dead(self, loops: Sequence[Loop]) -> None:
        """Run dead loops to their end, separately and without virtual time.

        A killed process runs no such end, so it must have no effect: the caller has cut their
        connections. This only cleans up the tasks in this process.
        """
        self.loops = [loop for loop in self.loops if loop not in loops]
        before = self.now, self.random.getstate()
        for loop in loops:
            loop.frozen_until = 0.0
            for task in sorted(asyncio.all_tasks(loop), key=hash):
                task.cancel()
        while any(asyncio.all_tasks(loop) for loop in loops):
            self._step(loops)
            if self.now > before[0] + CLEANUP_TIMEOUT:
                raise RuntimeError(f"a killed process still runs after {CLEANUP_TIMEOUT:g} s")
        for loop in loops:
            loop.close()
        self.now = before[0]
        self.random.setstate(before[1])
