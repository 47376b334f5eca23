"""The storms by name, their standard sizes, and the run of one storm.

A run has two parts: faults while jobs are left (or until its time is over), then calm, in which
every job must end. Then all processes are stopped, and the checker runs.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.chaos import faults
from benchmarks.chaos.disk.disk_storms import DISK_SIZES, DISK_STORMS
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.streams import stream_faults, stream_servers


HOUR = 3600.0
_BOTH = {"work": 3, "stepped": 1}
_AMONG = {"plain": 24, "in_child": 6}
_SERVED = TaskMix(tasks={"work": 2, "stepped": 1}, seconds=(0.0, 0.2), cancels=0.1)
_LIMITS: dict[str, dict[str, float]] = {
    "queue:default": {"concurrency": 8},
    "task:benchmarks.chaos.tasks.rated": {"starts": 8, "period": 0.5},
    "key:benchmarks.chaos.tasks.keyed": {"concurrency": 2},  # of 4 keys each
}

STORMS = {
    storm.name: storm
    for storm in (
        Storm(
            name="kill",
            mix=TaskMix(tasks=_BOTH),
            inject=faults.kill,
            counts="SIGKILL",
            every=0.1,
            sweepers=1,
        ),
        Storm(
            name="tree",
            mix=TaskMix(tasks=_BOTH, seconds=(0.0, 0.2)),
            inject=faults.kill_all,
            counts=faults.TREE,
            every=0.5,
            sweepers=1,
        ),
        Storm(
            name="freeze",
            mix=TaskMix(tasks={"work": 2, "stepped": 1, "blocking": 1}, seconds=(0.05, 0.2)),
            inject=faults.freeze,
            counts="SIGSTOP",
            hits=3,
            every=0.2,
            lease=1.0,
            sweepers=1,
        ),
        Storm(
            name="term",
            mix=TaskMix(tasks=_BOTH, seconds=(0.0, 0.4)),
            inject=faults.replace,
            counts="SIGTERM",
            every=0.2,
            lease=30.0,  # so that a machine that is slow burns nothing, either
            grace=0.1,
            may_lose_attempts=False,
        ),
        Storm(
            name="cancel",
            mix=TaskMix(tasks=_BOTH, cancels=0.7),
            lease=30.0,
            may_lose_attempts=False,
        ),
        Storm(
            name="lost-answers",
            mix=TaskMix(tasks={"work": 1, "stepped": 2}, cancels=0.1),
            inject=faults.replace,
            counts="SIGTERM",
            every=0.2,
            lost_calls=0.05,
            lease=30.0,
            sweepers=1,
            may_lose_attempts=False,
        ),
        Storm(name="killer", mix=TaskMix(tasks={"plain": 1}, once=("killer",)), producers=1),
        Storm(
            name="segfault",
            mix=TaskMix(tasks=_AMONG | {"segfault": 1}, once=("segfault",)),
            lease=30.0,
            may_lose_attempts=False,
        ),
        Storm(
            name="oom",
            mix=TaskMix(tasks=_AMONG | {"memory_hog": 1}, once=("memory_hog",)),
            lease=30.0,
            may_lose_attempts=False,
        ),
        Storm(
            name="leak",
            # Slow, so that the memory of a worker is checked while it grows.
            mix=TaskMix(tasks={"plain": 1, "leaky": 2}, seconds=(0.3, 0.7)),
            lease=30.0,
            may_lose_attempts=False,
            arguments=("--processes=1", "--max-memory=160M"),
        ),
        Storm(
            name="all",
            mix=TaskMix(
                tasks={"work": 3, "stepped": 3, "blocking": 1}, seconds=(0.0, 0.2), cancels=0.2
            ),
            inject=faults.any_of_them,
            every=0.2,
            sweepers=1,
            lost_calls=0.05,
        ),
        Storm(
            name="restart",
            mix=_SERVED,
            inject=faults.crash_server,
            counts=faults.CRASH,
            every=3.0,
            lease=30.0,  # outlasts the recovery: then it may cost no attempt
            sweepers=1,
            may_lose_attempts=False,
            only="postgresql",
            local_postgres=True,
        ),
        Storm(
            name="backends",
            mix=_SERVED,
            inject=faults.end_backends,
            counts=faults.BACKEND,
            every=0.2,
            lease=30.0,
            sweepers=1,
            may_lose_attempts=False,
            only="postgresql",
        ),
        Storm(
            name="clocks",
            mix=TaskMix(tasks=_BOTH),
            inject=faults.kill,
            counts="SIGKILL",
            every=0.1,
            sweepers=1,
            skew=HOUR,
            only="postgresql",  # SQLite uses the clock of the writing process
        ),
        Storm(
            name="flow",
            mix=TaskMix(tasks={}, flow=True),
            inject=faults.kill,
            counts="SIGKILL",
            every=0.1,
            producers=1,
            sweepers=1,
        ),
        Storm(
            name="limit",
            mix=TaskMix(
                tasks={"work": 1, "rated": 1, "keyed": 2},
                seconds=(0.05, 0.25),
                cancels=0.1,
                limits=_LIMITS,
            ),
            inject=faults.kill_or_freeze,
            every=0.2,
            sweepers=1,
        ),
        Storm(
            name="streams",  # with twenty readers of each job
            mix=TaskMix(tasks={"log_writer": 1}, seconds=(1.0, 4.0), cancels=0.1),
            inject=stream_faults.break_streams,
            every=0.5,
            sweepers=1,
            only="postgresql",
            around=stream_servers.with_stream_servers,
        ),
        *(replace(storm, only="sqlite") for storm in DISK_STORMS.values()),
    )
}

# What must be shown of each, on a machine of two cores in half an hour.
STANDARD_SIZES = {
    "kill": Plan(jobs=50_000, faults=1000, seconds=HOUR, seed=0, slots=2),
    "tree": Plan(jobs=5000, faults=100, seconds=HOUR, seed=0),
    "freeze": Plan(jobs=10_000, faults=300, seconds=HOUR, seed=0, workers=6),
    "term": Plan(jobs=5000, faults=200, seconds=HOUR, seed=0),
    "cancel": Plan(jobs=7500, seconds=HOUR, seed=0),
    "lost-answers": Plan(jobs=10_000, faults=100, seconds=HOUR, seed=0),
    "killer": Plan(jobs=1001, seconds=HOUR, seed=0),
    "segfault": Plan(jobs=1000, seconds=HOUR, seed=0),
    "oom": Plan(jobs=1000, seconds=HOUR, seed=0),
    "leak": Plan(jobs=500, seconds=HOUR, seed=0, workers=2),
    "all": Plan(jobs=5000, faults=150, seconds=HOUR, seed=0),
    "restart": Plan(jobs=6000, faults=60, seconds=HOUR, seed=0),
    "backends": Plan(jobs=5000, faults=500, seconds=HOUR, seed=0),
    "clocks": Plan(jobs=5000, faults=200, seconds=HOUR, seed=0),
    "flow": Plan(jobs=60_001, faults=100, seconds=HOUR, seed=0, lease=15.0),
    "limit": Plan(jobs=6000, faults=200, seconds=HOUR, seed=0),
    "streams": Plan(jobs=250, seconds=HOUR, seed=0, workers=4, slots=25, connections=5000),
    **DISK_SIZES,
}
