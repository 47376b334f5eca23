"""Measures the cost of limits in SQLite as virtual machine steps per job.

    python -m benchmarks.sqlite_vm_steps

No-op jobs are claimed and settled, 500 per call, with the concurrency limits of
`benchmarks.limits`, and other jobs are admitted for them. SQLite counts the steps itself
(`sqlite3_stmt_status`), so they are the same in each run. Steps differ in cost, so a ratio of steps
is not a ratio of time.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from benchmarks.limits import KEYED, PLAIN, SETTINGS, enqueue_jobs
from windlass.core.admission.limit import LIMIT, LimitSetting
from windlass.core.decisions.outcome import Succeeded, settle
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.versioned_record import Put
from windlass.stores.sqlite import SqliteStore
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction

CALL = 500  # jobs
CALLS = 4
WAITING = 8_000
RATED = "task rate"


async def steps(folder: Path, name: str) -> float:
    """Return the steps per job, from its claim to the admission of the next job."""
    counted: Counter[str] = Counter()

    def count(event: dict[str, Any]) -> None:
        counted["steps"] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def trace(tx: WriteTransaction) -> None:
        tx.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)

    async with SqliteStore(folder / "jobs.db", durability="off") as store:
        for limit, what in SETTINGS[name].items():
            put = Put(kind=LIMIT, key=limit, value=LimitSetting(override=what).encode())
            await store.put_records([put])
        await enqueue_jobs(store, WAITING, keyed=name in KEYED)
        await store._engine.write(trace)  # noqa: SLF001 - traces the write connection
        for _ in range(CALLS):
            claim = Claim(token=uuid7(), worker="steps", queues=[("default", CALL)], lease=60)
            rows = await store.claim(claim)
            assert len(rows) == CALL
            await store.apply([settle(row, Succeeded(), random=lambda: 0.5) for row in rows])
    return counted["steps"] / (CALL * CALLS)


async def table(names: Sequence[str]) -> dict[str, float]:
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found[name] = await steps(Path(folder), name)
    return found


def main() -> None:
    found = asyncio.run(table([name for name in SETTINGS if name != RATED]))
    for name, many in found.items():
        print(f"{name:<32}{many:>8.0f}{many / found[PLAIN]:>8.2f}")


if __name__ == "__main__":
    main()
