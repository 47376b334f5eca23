"""The storms by name, and their standard sizes."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.chaos import faults
from benchmarks.chaos.disk.disk_storms import DISK_SIZES, DISK_STORMS
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.streams import stream_faults, stream_servers

HOUR = 3600.0
_WORK_AND_STEPS = {"work": 3, "stepped": 1}
_HARMLESS_TASKS = {"plain": 24, "in_child": 6}
_SERVER_MIX = TaskMix(tasks={"work": 2, "stepped": 1}, seconds=(0.0, 0.2), cancels=0.1)
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
            mix=TaskMix(tasks=_WORK_AND_STEPS),
            inject=faults.kill,
            counted_fault="SIGKILL",
            interval=0.1,
            sweepers=1,
        ),
        Storm(
            name="tree",
            mix=TaskMix(tasks=_WORK_AND_STEPS, seconds=(0.0, 0.2)),
            inject=faults.kill_all,
            counted_fault=faults.ALL_KILLED,
            interval=0.5,
            sweepers=1,
        ),
        Storm(
            name="freeze",
            mix=TaskMix(tasks={"work": 2, "stepped": 1, "blocking": 1}, seconds=(0.05, 0.2)),
            inject=faults.freeze,
            counted_fault="SIGSTOP",
            faults_per_injection=3,
            interval=0.2,
            lease=1.0,
            sweepers=1,
        ),
        Storm(
            name="term",
            mix=TaskMix(tasks=_WORK_AND_STEPS, seconds=(0.0, 0.4)),
            inject=faults.replace_worker,
            counted_fault="SIGTERM",
            interval=0.2,
            lease=30.0,  # long, so that a slow machine loses no attempt, either
            grace=0.1,
            may_lose_attempts=False,
        ),
        Storm(
            name="cancel",
            mix=TaskMix(tasks=_WORK_AND_STEPS, cancels=0.7),
            lease=30.0,
            may_lose_attempts=False,
        ),
        Storm(
            name="lost-answers",
            mix=TaskMix(tasks={"work": 1, "stepped": 2}, cancels=0.1),
            inject=faults.replace_worker,
            counted_fault="SIGTERM",
            interval=0.2,
            lost_calls=0.05,
            lease=30.0,
            sweepers=1,
            may_lose_attempts=False,
        ),
        Storm(name="killer", mix=TaskMix(tasks={"plain": 1}, once=("killer",)), producers=1),
        Storm(
            name="segfault",
            mix=TaskMix(tasks=_HARMLESS_TASKS | {"segfault": 1}, once=("segfault",)),
            lease=30.0,
            may_lose_attempts=False,
        ),
        Storm(
            name="oom",
            mix=TaskMix(tasks=_HARMLESS_TASKS | {"memory_hog": 1}, once=("memory_hog",)),
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
            inject=faults.any_worker_fault,
            interval=0.2,
            sweepers=1,
            lost_calls=0.05,
        ),
        Storm(
            name="restart",
            mix=_SERVER_MIX,
            inject=faults.crash_server,
            counted_fault=faults.CRASH,
            interval=3.0,
            lease=30.0,  # longer than the recovery, so that no attempt is lost
            sweepers=1,
            may_lose_attempts=False,
            only_store="postgresql",
            needs_own_server=True,
        ),
        Storm(
            name="backends",
            mix=_SERVER_MIX,
            inject=faults.terminate_backends,
            counted_fault=faults.BACKEND,
            interval=0.2,
            lease=30.0,
            sweepers=1,
            may_lose_attempts=False,
            only_store="postgresql",
        ),
        Storm(
            name="clocks",
            mix=TaskMix(tasks=_WORK_AND_STEPS),
            inject=faults.kill,
            counted_fault="SIGKILL",
            interval=0.1,
            sweepers=1,
            skew=HOUR,
            only_store="postgresql",  # SQLite uses the clock of the writing process
        ),
        Storm(
            name="flow",
            mix=TaskMix(tasks={}, flow=True),
            inject=faults.kill,
            counted_fault="SIGKILL",
            interval=0.1,
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
            interval=0.2,
            sweepers=1,
        ),
        Storm(
            name="streams",  # twenty readers per job
            mix=TaskMix(tasks={"log_writer": 1}, seconds=(1.0, 4.0), cancels=0.1),
            inject=stream_faults.break_streams,
            interval=0.5,
            sweepers=1,
            only_store="postgresql",
            context=stream_servers.with_stream_servers,
        ),
        *(replace(storm, only_store="sqlite") for storm in DISK_STORMS.values()),
    )
}

# Sizes of the proof report, for a machine of two cores.
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
