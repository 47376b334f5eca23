"""A whole run: every side in every round, and a description of the machine."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windlass.bench.peers import PEERS, load
from windlass.bench.plan import Plan, ProgressCallback
from windlass.bench.results import SQLITE, Goal, Result, SideResult
from windlass.bench.round import Round, RoundSetup, attempt
from windlass.bench.server import BenchServer
from windlass.bench.side import PAYLOAD, POLL, Side, installed

_STEPS = {
    "throughput": "runs {jobs:,} jobs",
    "pair": "runs {jobs:,} jobs with two workers",
    "waiting": "waits for jobs",
}


def measure(
    plan: Plan,
    directory: Path,
    progress: ProgressCallback,
    peers: Mapping[str, str] = PEERS,
    *,
    servers: Mapping[str, BenchServer] | None = None,
    goals: Sequence[Goal] = SQLITE,
) -> Result:
    """Measure these peers (names and modules) in an empty directory of the disk to measure.

    `progress` gets the next step, the number of steps done and their total. `servers` are the
    running servers by kind; sides that need another server are skipped.
    """
    servers = servers or {}
    result = Result(plan, machine(), goals)
    for name, module in peers.items():
        side = load(module)
        reason = side.missing()
        if reason is None and side.server is not None and side.server not in servers:
            reason = f"no {side.server} server"
        if reason is None:
            result.sides[name] = _side_result(side, servers)
        else:
            result.skipped[name] = reason
    steps = list(_steps(plan, list(result.sides)))
    for done, (number, kind, name) in enumerate(steps):
        side_plan = plan.shared(load(peers[name]).share)
        step = _STEPS[kind].format(jobs=side_plan.total)
        progress(f"round {number + 1} of {plan.rounds}: {name} {step}", done, len(steps))
        path = directory / f"{done}-{name}"
        result.sides[name].rounds.append(_round(kind, peers[name], side_plan, path, servers))
        shutil.rmtree(path)
    progress("done", len(steps), len(steps))
    return result


def _side_result(side: type[Side], servers: Mapping[str, BenchServer]) -> SideResult:
    result = SideResult(side.version(), side.durability, side.bulk, side.server)
    if side.server is not None:
        server = servers[side.server]
        result.durability, result.synced = f"{side.durability}; {server.durability}", server.synced
    return result


def _round(
    kind: str, module: str, plan: Plan, path: Path, servers: Mapping[str, BenchServer]
) -> Round:
    needed = load(module).server
    if needed is None:
        return attempt(kind, RoundSetup(module, plan, path, None, ""))
    server = servers[needed]
    with server.new_database() as url:
        server.quiesce(url)
        return attempt(kind, RoundSetup(module, plan, path, server, url))


def _steps(plan: Plan, names: list[str]) -> list[tuple[int, str, str]]:
    """Return the steps. Sides alternate, in reverse order every other round."""
    wanted = {"throughput": plan.throughput, "pair": plan.pair, "waiting": plan.waiting}
    return [
        (number, kind, name)
        for kind in wanted
        if wanted[kind]
        for number in range(plan.rounds)
        for name in (reversed(names) if number % 2 else names)
    ]


def machine() -> dict[str, Any]:
    import sqlite3  # noqa: PLC0415 - the SQLite of the peers; only this command needs it

    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": {"windlass (apsw)": installed("apsw"), "peers (sqlite3)": sqlite3.sqlite_version},
        "uvloop": installed("uvloop"),
        "payload_bytes": PAYLOAD,
        "poll_seconds": POLL,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
