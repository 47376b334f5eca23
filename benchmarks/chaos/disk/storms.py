"""The storms of the disk."""

from __future__ import annotations

from benchmarks.chaos.disk.errors import deadly, failing, kill_at_sync, spoil
from benchmarks.chaos.disk.full_disk import fill, small
from benchmarks.chaos.disk.power import CUT, cut, powered
from benchmarks.chaos.processes import Mix
from benchmarks.chaos.storm import Plan, Storm

_HOUR = 3600.0
_MIX = Mix(tasks={"work": 3, "stepped": 1}, seconds=(0.0, 0.2), pause=0.2)
_LONG = 30.0  # a lease that outlasts the fault: then it may cost no attempt

DISK_STORMS = {
    storm.name: storm
    for storm in (
        Storm(
            name="powercut",
            mix=_MIX,
            strike=cut,
            counts=CUT,
            every=0.5,
            lease=1.0,
            around=powered,
        ),
        Storm(
            name="full", mix=_MIX, strike=fill, every=0.3, lease=_LONG, burns=False, around=small
        ),
        Storm(
            name="eio", mix=_MIX, strike=spoil, every=0.3, lease=_LONG, burns=False, around=failing
        ),
        Storm(name="fsync-kill", mix=_MIX, strike=kill_at_sync, every=0.1, around=deadly),
    )
}
DISK_SIZES = {
    "powercut": Plan(jobs=3000, faults=100, seconds=_HOUR, seed=0, slots=2),
    "full": Plan(jobs=5000, faults=50, seconds=_HOUR, seed=0),
    "eio": Plan(jobs=5000, faults=100, seconds=_HOUR, seed=0),
    "fsync-kill": Plan(jobs=5000, faults=100, seconds=_HOUR, seed=0),
}
