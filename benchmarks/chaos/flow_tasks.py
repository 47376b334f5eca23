"""The tasks of the storm `flow`: a diamond, and one job that fans out and waits for its parts.

The two fan-in tasks kill their own process a few times: before they wait, during the write of
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

DIAMOND = 6  # one in so many jobs belongs to the diamond

KILLS = 2  # of each fan-in
Result = dict[str, Any]
_priority_task = app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1), priority=1)
_task = app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))


@_task
async def top(ctx: Context) -> Result:
    record(ctx, "start")
    return finish(ctx)


@_task
async def middle(ctx: Context, above: Result) -> Result:
    record(ctx, "start")
    return finish(ctx, got=[_name(above)])


@_priority_task
async def bottom(ctx: Context, above: list[Result], kill_within: float) -> Result:
    record(ctx, "start")
    _kill_later(ctx, kill_within)
    return finish(ctx, got=[_name(result) for result in above])


@_task
async def part(ctx: Context, item: int) -> Result:
    record(ctx, "start", item=item)
    return finish(ctx)


@_priority_task
async def fan(ctx: Context, parts: int, kill_within: float) -> Result:
    """Suspend with all parts, then continue with their results."""

    async def plan() -> int:
        record(ctx, "step", step="plan")
        return ctx.fence

    record(ctx, "start")
    await ctx.astep("plan", plan)
    _kill_later(ctx, kill_within)
    made = await ctx.amap(part, range(parts))
    return finish(ctx, got=[_name(result) for result in made])


def _name(result: Result) -> list[object]:
    return [result["job"], result["fence"]]


def _kill_later(ctx: Context, seconds: float) -> None:
    """Kill this process within `seconds`."""
    if ctx.job.crash_count < KILLS:
        wait = Random(f"{ctx.job.id} {ctx.fence}").uniform(0, seconds)
        timer = Timer(wait, _kill_process)
        timer.daemon = True
        timer.start()


def _kill_process() -> None:
    note("driver", fault="SIGKILL of a fan-in worker", pid=os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """A flow with a diamond and a fan-out."""

    flow: Flow
    nodes: list[Node[Any]]
    fan: Node[Any]
    parts: int


def planned_flow(jobs: int) -> PlannedFlow:
    """Return a flow of this many jobs. A larger fan-in is killed later."""
    diamond = max(jobs // DIAMOND, 3)
    parts = jobs - diamond - 1
    kill_within = 0.2 + jobs / 20_000
    flow = app.flow()
    first = flow.add(top)
    between = flow.each(middle, [first.result] * (diamond - 2))
    last = flow.add(bottom, between.results, kill_within)
    fans = flow.add(fan, parts, kill_within)
    return PlannedFlow(flow, [first, *between, last, fans], fans, parts)
