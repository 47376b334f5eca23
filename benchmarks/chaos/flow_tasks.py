"""The tasks of the storm `flow`: a diamond, and one job that fans out and waits for its parts.

The two tasks that gather kill their own process a few times: before they wait, during the write of
the wait, with all results, and before their settle.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from random import Random
from threading import Timer
from typing import Any

from benchmarks.chaos.ledger import note
from benchmarks.chaos.tasks import HIGH_CRASH_CAP, app, finish, record
from windlass import Context, Flow, Node, fixed

DIAMOND = 6  # one job of so many belongs to the diamond

DEATHS = 2  # of each that gathers
Result = dict[str, Any]
_patient = app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1), priority=1)
_plain = app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))


@_plain
async def top(ctx: Context) -> Result:
    record(ctx, "start")
    return finish(ctx)


@_plain
async def middle(ctx: Context, above: Result) -> Result:
    record(ctx, "start")
    return finish(ctx, got=[_name(above)])


@_patient
async def bottom(ctx: Context, above: list[Result], doom: float) -> Result:
    record(ctx, "start")
    _doom(ctx, doom)
    return finish(ctx, got=[_name(one) for one in above])


@_plain
async def part(ctx: Context, item: int) -> Result:
    record(ctx, "start", item=item)
    return finish(ctx)


@_patient
async def fan(ctx: Context, parts: int, doom: float) -> Result:
    """Suspend with all parts, then continue with their results."""

    async def plan() -> int:
        record(ctx, "step", step="plan")
        return ctx.fence

    record(ctx, "start")
    await ctx.astep("plan", plan)
    _doom(ctx, doom)
    made = await ctx.amap(part, range(parts))
    return finish(ctx, got=[_name(one) for one in made])


def _name(result: Result) -> list[object]:
    return [result["job"], result["fence"]]


def _doom(ctx: Context, seconds: float) -> None:
    """Kill this process within `seconds`."""
    if ctx.job.crash_count < DEATHS:
        wait = Random(f"{ctx.job.id} {ctx.fence}").uniform(0, seconds)
        timer = Timer(wait, _die)
        timer.daemon = True
        timer.start()


def _die() -> None:
    note("driver", fault="SIGKILL of a fan-in worker", pid=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Written:
    """A diamond, and beside it a job that fans out."""

    flow: Flow
    nodes: list[Node[Any]]
    fan: Node[Any]
    parts: int


def written(jobs: int) -> Written:
    """Return the arguments for this many jobs. A job that gathers many is killed later."""
    diamond = max(jobs // DIAMOND, 3)
    parts = jobs - diamond - 1
    doom = 0.2 + jobs / 20_000
    flow = app.flow()
    first = flow.add(top)
    between = flow.each(middle, [first.result] * (diamond - 2))
    last = flow.add(bottom, between.results, doom)
    fans = flow.add(fan, parts, doom)
    return Written(flow, [first, *between, last, fans], fans, parts)
