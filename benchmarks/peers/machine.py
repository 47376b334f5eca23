"""Description of the machine and the library versions of a comparison."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.queue_adapter import PAYLOAD_SIZE, POLL_INTERVAL, installed


def describe_machine() -> dict[str, Any]:
    import sqlite3  # noqa: PLC0415 - the SQLite of the peers; only this command needs it

    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": {"windlass (apsw)": installed("apsw"), "peers (sqlite3)": sqlite3.sqlite_version},
        "uvloop": installed("uvloop"),
        "payload_bytes": PAYLOAD_SIZE,
        "poll_seconds": POLL_INTERVAL,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
