"""The tasks of a simulation run, and a ledger of their attempts outside the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from benchmarks.chaos.simulation.event_loops import World
from windlass import Context, RetryAfter, Snooze, Windlass, fixed

CRASH_CAP = 1000  # high, because many processes are killed
ERRORS = 2
SNOOZES = 2


class PlannedError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """An attempt that started, ended, raised or was stopped; `step` names a step."""

    at: float
    job: UUID
    fence: int
    phase: str
    step: str = ""


class SimulatedTasks:
    """Tasks that write to one ledger while their process runs.

    Each returns the fence of its attempt: `failing` after its errors, `snoozing` after its snoozes.
    """

    def __init__(self, app: Windlass, world: World) -> None:
        self.ledger: list[TaskEvent] = []
        self._snoozed: Counter[UUID] = Counter()
        self._world = world
        task = app.task(crash_cap=CRASH_CAP, max_retries=5, backoff=fixed(0.2))
        self.by_name = {
            name: task(getattr(self, name))
            for name in (
                "plain",
                "failing",
                "uncancelable",
                "stepped",
                "reporting",
                "parent",
                "snoozing",
            )
        }
        self.weights = {"plain": 6, "failing": 2, "uncancelable": 2, "stepped": 2, "reporting": 2,
                        "parent": 1, "snoozing": 1}  # fmt: skip

    def _note(self, ctx: Context, phase: str, step: str = "") -> None:
        if asyncio.get_running_loop() in self._world.loops:  # otherwise its process is dead
            self.ledger.append(TaskEvent(self._world.now, ctx.job.id, ctx.fence, phase, step))

    def _end(self, ctx: Context) -> int:
        self._note(ctx, "end")
        return ctx.fence

    async def plain(self, ctx: Context, seconds: float) -> int:
        self._note(ctx, "start")
        await asyncio.sleep(seconds)
        return self._end(ctx)

    async def failing(self, ctx: Context, seconds: float) -> int:
        """Raises twice; the second time with its own delay."""
        self._note(ctx, "start")
        await asyncio.sleep(seconds)
        errors = ctx.job.retry_count
        if errors < ERRORS:
            self._note(ctx, "raise")
            if errors:
                raise RetryAfter(0.3)
            raise PlannedError("on purpose")
        return self._end(ctx)

    async def uncancelable(self, ctx: Context, seconds: float) -> int:
        """Ignores the stop request and runs to its end."""
        self._note(ctx, "start")
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                self._note(ctx, "stop")
                if ctx.cancelled and left > 5:
                    raise
        return self._end(ctx)

    async def stepped(self, ctx: Context, seconds: float) -> int:
        self._note(ctx, "start")

        async def step(name: str) -> str:
            self._note(ctx, "step", name)
            await asyncio.sleep(seconds / 2)
            return name

        for name in ("first", "second"):
            await ctx.astep(name, step, name)
        return self._end(ctx)

    async def reporting(self, ctx: Context, seconds: float) -> int:
        self._note(ctx, "start")
        for part in range(4):
            ctx.progress(25 * part)
            ctx.log(f"part {part} of fence {ctx.fence}")
            await asyncio.sleep(seconds / 4)
        return self._end(ctx)

    async def parent(self, ctx: Context, seconds: float) -> int:
        """Enqueues a child with its success."""
        self._note(ctx, "start")
        await asyncio.sleep(seconds)
        child: Any = self.by_name["plain"]
        self._note(ctx, "child", str(ctx.then(child, seconds)))
        return self._end(ctx)

    async def snoozing(self, ctx: Context, seconds: float) -> int:
        """Snoozes twice, which is never counted."""
        self._note(ctx, "start")
        self._snoozed[ctx.job.id] += 1
        if self._snoozed[ctx.job.id] <= SNOOZES:
            self._note(ctx, "snooze")
            raise Snooze(seconds)
        return self._end(ctx)
