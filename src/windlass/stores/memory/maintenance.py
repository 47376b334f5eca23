"""Maintenance methods of the memory store: due jobs, expired leases, retention, deletion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import ApplyResult, Status
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL
from windlass.core.versioned_record import unexpired
from windlass.store import Pruned, Retention
from windlass.stores.memory import gates
from windlass.stores.memory.records import MemoryRecords

MISSING = ApplyResult(Status.MISSING)


class MemoryMaintenance(MemoryRecords):
    async def due(self, limit: int) -> list[JobRow]:
        with self._data.lock:
            now = self._now()
            jobs = list(self._data.jobs.values())
            at_gates = gates.due(self._data, now)
        expired = [row for row in jobs if maintenance.lease_expired(row, now)]
        expired.sort(key=lambda row: (row.lease_until or 0, row.serial))
        due = [(maintenance.due_since(row, now), row.serial, row) for row in jobs]
        ready = sorted((since, serial, row) for since, serial, row in due if since is not None)
        others = [row for _, _, row in ready if row not in at_gates]
        return [*expired[:limit], *[*at_gates, *others][:limit]]

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        data = self._data
        with data.lock:
            now = self._now()
            keep = {state: getattr(retention, state.value) for state in FINAL}
            ended = sorted((r for r in data.jobs.values() if r.final), key=_end_order)
            past_retention = [row for row in ended if _past_retention(row, keep[row.state], now)][
                :limit
            ]
            for row in past_retention:
                self._delete(row)
            logs = [
                row
                for row in ended
                if row.id in data.jobs
                and data.logs[row.id]
                and _past_retention(row, retention.log, now)
            ][:limit]
            for row in logs:
                data.logs.pop(row.id)
                data.jobs[row.id] = replace(row, log_floor=row.seq - 1)
            expired_records = [key for key, e in data.entries.items() if not unexpired(e, now)]
            for key in expired_records:
                del data.entries[key]
            rollups = self._prune_rollups(retention, now)
        return Pruned(len(past_retention), len(logs), len(expired_records), rollups)

    def _prune_rollups(self, retention: Retention, now: Instant) -> int:
        until = maintenance.retention_cutoff(now, retention.rollups)
        if until is None:
            return 0
        old = [key for key in self._data.rollups if key[0] < until]
        for key in old:
            del self._data.rollups[key]
        return len(old)

    def _delete(self, row: JobRow) -> None:
        data = self._data
        del data.jobs[row.id]
        data.logs.pop(row.id, None)
        data.steps.pop(row.id, None)
        for parent in data.edges.pop(row.id, ()):
            if parent in data.dependents:
                data.dependents[parent].remove(row.id)
        data.dependents.pop(row.id, None)
        if row.request_id is not None:
            del data.requests[row.owner, row.request_id]

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        results = []
        with self._data.lock:
            for job_id in ids:
                row = self._visible(job_id, owner)
                if row is None:
                    results.append(MISSING)
                elif not row.final:
                    results.append(ApplyResult(Status.CONFLICT, row.state))
                else:
                    self._delete(row)
                    results.append(ApplyResult(Status.APPLIED, row.state))
        return results


def _end_order(row: JobRow) -> tuple[Instant, int]:
    return row.ended_at or 0, row.serial


def _past_retention(row: JobRow, seconds: float, now: Instant) -> bool:
    cutoff = maintenance.retention_cutoff(now, seconds)
    return cutoff is not None and (row.ended_at or 0) <= cutoff
