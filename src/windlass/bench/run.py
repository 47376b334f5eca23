"""A whole run: every side in every round, in turn, and the machine that it was on."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from windlass.bench.figures import Result, SideResult
from windlass.bench.peers import PEERS, load
from windlass.bench.plan import Plan, Told
from windlass.bench.rounds import attempt
from windlass.bench.side import PAYLOAD, POLL


def measure(
    plan: Plan,
    directory: Path,
    progress: Told,
    peers: Mapping[str, str] = PEERS,
) -> Result:
    """Measure these peers (names and their modules) in an empty directory of the disk that counts.

    `progress` is told what comes next, and how many of how many steps are done.
    """
    result = Result(plan, machine())
    for name, module in peers.items():
        side = load(module)
        if find_spec(side.library) is None:
            result.skipped[name] = f"not installed: pip install {side.package}"
        else:
            result.sides[name] = SideResult(_version(side.package), side.durability, side.bulk)
    steps = list(_steps(plan, list(result.sides)))
    for done, (number, wait, name) in enumerate(steps):
        what = "waits for work" if wait else f"works off {plan.total:,} jobs"
        progress(f"round {number + 1} of {plan.rounds}: {name} {what}", done, len(steps))
        place = directory / f"{done}-{name}"
        result.sides[name].rounds.append(attempt(peers[name], plan, place, wait=wait))
        shutil.rmtree(place)
    progress("done", len(steps), len(steps))
    return result


def _steps(plan: Plan, names: list[str]) -> list[tuple[int, bool, str]]:
    """Turn by turn, and every other round backwards: nobody is always the first."""
    kinds = [kind for kind, wanted in ((False, plan.throughput), (True, plan.waiting)) if wanted]
    return [
        (number, wait, name)
        for wait in kinds
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
        "sqlite": {"windlass (apsw)": _version("apsw"), "peers (sqlite3)": sqlite3.sqlite_version},
        "uvloop": _version("uvloop"),
        "payload_bytes": PAYLOAD,
        "poll_seconds": POLL,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
