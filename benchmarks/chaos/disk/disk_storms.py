"""The disk storms by name, and their standard sizes."""

from __future__ import annotations

from benchmarks.chaos.disk.full_disk import fill, small_disk
from benchmarks.chaos.disk.io_errors import fail_writes, failing_disk
from benchmarks.chaos.disk.kill_at_sync import kill_at_sync, killing_disk
from benchmarks.chaos.disk.power_cut import CUT, cut, journaled_disk
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.storm import Plan, Storm

_HOUR = 3600.0
_MIX = TaskMix(tasks={"work": 3, "stepped": 1}, seconds=(0.0, 0.2), pause=0.2)
_LONG_LEASE = 30.0  # a lease longer than the fault, so that no attempt is lost

DISK_STORMS = {
    storm.name: storm
    for storm in (
        Storm(
            name="powercut",
            mix=_MIX,
            inject=cut,
            counted_fault=CUT,
            interval=0.5,
            lease=1.0,
            context=journaled_disk,
        ),
        Storm(
            name="full",
            mix=_MIX,
            inject=fill,
            interval=0.3,
            lease=_LONG_LEASE,
            may_lose_attempts=False,
            context=small_disk,
        ),
        Storm(
            name="eio",
            mix=_MIX,
            inject=fail_writes,
            interval=0.3,
            lease=_LONG_LEASE,
            may_lose_attempts=False,
            context=failing_disk,
        ),
        Storm(name="fsync-kill", mix=_MIX, inject=kill_at_sync, interval=0.1, context=killing_disk),
    )
}
DISK_SIZES = {
    "powercut": Plan(jobs=3000, faults=100, seconds=_HOUR, seed=0, slots=2),
    "full": Plan(jobs=5000, faults=50, seconds=_HOUR, seed=0),
    "eio": Plan(jobs=5000, faults=100, seconds=_HOUR, seed=0),
    "fsync-kill": Plan(jobs=5000, faults=100, seconds=_HOUR, seed=0),
}
