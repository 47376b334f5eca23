"""A whole run: every side in every round, in turn, and the machine that it was on."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windlass.bench.peers import PEERS, load
from windlass.bench.plan import Plan, Told
from windlass.bench.results import SQLITE, Goal, Result, SideResult
from windlass.bench.round import Round, Setting, attempt
from windlass.bench.server import Server
from windlass.bench.side import PAYLOAD, POLL, Side, installed

_WORDS = {
    "throughput": "works off {jobs:,} jobs",
    "pair": "works off {jobs:,} jobs by two workers",
    "waiting": "waits for work",
}


def measure(
    plan: Plan,
    directory: Path,
    progress: Told,
    peers: Mapping[str, str] = PEERS,
    *,
    servers: Mapping[str, Server] | None = None,
    goals: Sequence[Goal] = SQLITE,
) -> Result:
    """Measure these peers (names and their modules) in an empty directory of the disk that counts.

    `progress` is told what comes next, and how many of how many steps are done. `servers` are those
    that run, by their kind; sides that need another are skipped.
    """
    servers = servers or {}
    result = Result(plan, machine(), goals)
    for name, module in peers.items():
        side = load(module)
        reason = side.missing()
        if reason is None and side.server is not None and side.server not in servers:
            reason = f"no {side.server} server"
        if reason is None:
            result.sides[name] = _entrant(side, servers)
        else:
            result.skipped[name] = reason
    steps = list(_steps(plan, list(result.sides)))
    for done, (number, kind, name) in enumerate(steps):
        mine = plan.shared(load(peers[name]).share)
        what = _WORDS[kind].format(jobs=mine.total)
        progress(f"round {number + 1} of {plan.rounds}: {name} {what}", done, len(steps))
        place = directory / f"{done}-{name}"
        result.sides[name].rounds.append(_round(kind, peers[name], mine, place, servers))
        shutil.rmtree(place)
    progress("done", len(steps), len(steps))
    return result


def _entrant(side: type[Side], servers: Mapping[str, Server]) -> SideResult:
    result = SideResult(side.version(), side.durability, side.bulk, side.server)
    if side.server is not None:
        server = servers[side.server]
        result.durability, result.synced = f"{side.durability}; {server.durability}", server.synced
    return result


def _round(kind: str, module: str, plan: Plan, place: Path, servers: Mapping[str, Server]) -> Round:
    needed = load(module).server
    if needed is None:
        return attempt(kind, Setting(module, plan, place, None, ""))
    server = servers[needed]
    with server.fresh() as url:
        server.rest(url)
        return attempt(kind, Setting(module, plan, place, server, url))


def _steps(plan: Plan, names: list[str]) -> list[tuple[int, str, str]]:
    """Turn by turn, and every other round backwards: nobody is always the first."""
    wanted = {"throughput": plan.throughput, "pair": plan.pair, "waiting": plan.waiting}
    return [
        (number, kind, name)
        for kind in wanted
        if wanted[kind]
        for number in range(plan.rounds)
        for name in (reversed(names) if number % 2 else names)
    ]


def machine() -> dict[str, Any]:
    import sqlite3  # noqa: PLC0415 - the peers' SQLite; no other command needs to load a second one

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
