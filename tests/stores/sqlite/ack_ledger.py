"""Ledger of acknowledged writes, and a check of a file against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import apsw

from windlass.core.job.event_log import expected_fold, fold
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.stores.sqlite import reads


class Deleted(Enum):
    REQUESTED = "its deletion was requested"
    ACKNOWLEDGED = "its deletion was acknowledged"


Promise: TypeAlias = JobRow | Deleted


class Ledger:
    """Rows read after each acknowledged call, in order."""

    def __init__(self) -> None:
        self.enqueued: set[UUID] = set()
        self.entries: list[tuple[UUID, Promise]] = []

    async def note(self, store: Store, ids: Iterable[UUID]) -> None:
        requested = list(ids)
        rows = await store.get(requested)
        self.entries += zip(requested, (row or Deleted.ACKNOWLEDGED for row in rows), strict=True)

    def request_deletion(self, ids: Iterable[UUID]) -> None:
        """Record a deletion that is about to start: the jobs may exist or not from now on."""
        self.entries += ((job_id, Deleted.REQUESTED) for job_id in ids)

    def promises(self, length: int | None = None) -> Mapping[UUID, Promise]:
        """Return the acknowledged state at this length of the ledger."""
        return dict(self.entries[:length])


def existing(promises: Mapping[UUID, Promise]) -> Mapping[UUID, JobRow]:
    """Return the jobs that must exist."""
    return {key: row for key, row in promises.items() if not isinstance(row, Deleted)}


def broken_promises(path: Path, promises: Mapping[UUID, Promise], enqueued: set[UUID]) -> list[str]:
    """Return all violations in a file, opened like by any SQLite program."""
    connection = apsw.Connection(str(path))
    try:
        return _audit(connection, promises, enqueued)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [f"the file is broken: {error}"]
    finally:
        connection.close()


def _audit(
    connection: apsw.Connection, promises: Mapping[UUID, Promise], enqueued: set[UUID]
) -> list[str]:
    [(verdict,), *more] = connection.execute("PRAGMA integrity_check").fetchall()
    if verdict != "ok":
        return [f"integrity: {verdict} and {len(more)} more"]
    if not connection.table_exists("main", "windlass_job"):
        return [f"job {job_id} is lost, with its table" for job_id in existing(promises)]
    ids = [UUID(bytes=row[0]) for row in connection.execute("SELECT id FROM windlass_job")]
    found = {row.id: row for row in reads.get(connection, ids, None) if row is not None}
    violations_found = [f"job {job_id} exists twice" for job_id in ids if ids.count(job_id) > 1]
    violations_found += [f"job {job_id} was never enqueued" for job_id in found.keys() - enqueued]
    for row in found.values():
        violations_found += _log_faults(connection, row)
    for job_id, promised in promises.items():
        violations_found += _faults(promised, found.get(job_id), job_id)
    return violations_found


def _log_faults(connection: apsw.Connection, row: JobRow) -> list[str]:
    page = reads.events(connection, row.id, row.log_floor, 10_000)
    assert page is not None
    events = page.events
    if [event.seq for event in events] != list(range(row.log_floor + 1, row.seq + 1)):
        return [f"the log of job {row.id} has gaps"]
    if row.log_floor == 0 and fold(events) != expected_fold(row):
        return [f"the log of job {row.id} does not fold to its row"]
    return []


def _faults(promised: Promise, found: JobRow | None, job_id: UUID) -> list[str]:
    if promised is Deleted.REQUESTED:
        return []
    if promised is Deleted.ACKNOWLEDGED:
        return [f"job {job_id} exists again"] if found is not None else []
    if found is None:
        return [f"job {job_id} is lost"]
    later = found.seq > promised.seq
    checks = {
        "payload": found.payload == promised.payload,
        "number of events": found.seq >= promised.seq,
        "fence": found.fence >= promised.fence,
        "percent": found.percent >= promised.percent,
        "lease": found.seq > promised.seq
        or (found.lease_until or 0) >= (promised.lease_until or 0),
        "snapshot": later or expected_fold(found) == expected_fold(promised),
        "final state": not promised.final or expected_fold(found) == expected_fold(promised),
    }
    return [
        f"{what} of job {job_id} is older than acknowledged"
        for what, kept in checks.items()
        if not kept
    ]


def violations(path: Path, ledger: Ledger) -> Sequence[str]:
    return broken_promises(path, ledger.promises(), ledger.enqueued)
