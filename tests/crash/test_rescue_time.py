"""The job of a dead worker is claimable within its lease plus two seconds, in virtual time.

The sweeper's real loop runs with its default interval. The seed chooses when the worker dies and
the phase of the sweeper's interval.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from benchmarks.chaos.simulation.event_loops import World

from windlass import WorkerConfig
from windlass.core.clock import Instant
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.store import Retention
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import START
from windlass.testing.factories import make_job
from windlass.worker.loops.sweeper import Sweeper

SLACK = 2.0
CHECK_INTERVAL = 0.05


@dataclass
class WorldClock:
    world: World

    def now(self) -> Instant:
        return START + round(self.world.now * 1_000_000)


async def seconds_until_claimable(world: World, lease: float) -> float:
    """Return the time from the death of a worker with a job to the claim by another."""
    random = world.random
    store = MemoryStore(clock=WorldClock(world))
    sweeping = asyncio.create_task(Sweeper(store, WorkerConfig().sweep_interval, Retention()).run())
    await asyncio.sleep(random.uniform(0, 5))
    await store.enqueue([make_job()])
    [job] = await store.claim(claim_by("dead", lease))
    for _ in range(random.randrange(4)):
        await asyncio.sleep(lease / 3)
        await store.extend([job.lease], lease)
    await asyncio.sleep(random.uniform(0, lease / 3))
    died_at = world.now
    await asyncio.sleep(lease / 2)
    while not await store.claim(claim_by("next", lease)):  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(CHECK_INTERVAL)
    sweeping.cancel()
    return world.now - died_at


def claim_by(worker: str, lease: float) -> Claim:
    return Claim(token=uuid7(), worker=worker, queues=[("default", 1)], lease=lease)


@pytest.mark.parametrize("lease", [1.5, 30.0])
def test_a_dead_workers_job_is_claimable_within_its_lease_and_two_seconds(lease: float) -> None:
    rescue_times = []
    for seed in range(100):
        world = World(seed)
        rescue_times.append(world.run(seconds_until_claimable(world, lease), world.loop()))
        world.close_dead(world.loops)
    assert max(rescue_times) <= lease + SLACK
    assert min(rescue_times) >= lease * 2 / 3  # not rescued before its lease could expire
