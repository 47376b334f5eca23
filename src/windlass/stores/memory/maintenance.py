"""What is due, what has lost its lease, and what need not be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core import records
from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import Answer, Status
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL
from windlass.store import Pruned, Retention
from windlass.stores.memory import gates
from windlass.stores.memory.reads import MemoryReads

MISSING = Answer(Status.MISSING)


class MemoryKeeping(MemoryReads):
    async def due(self, limit: int) -> list[JobRow]:
        with self._data.lock:
            now = self._now()
            at_gates = gates.due(self._data, now)
            found = [(maintenance.due_since(r, now), r.serial, r) for r in self._data.jobs.values()]
        ready = sorted((since, serial, r) for since, serial, r in found if since is not None)
        others = [row for _, _, row in ready if row not in at_gates]
        return [*at_gates, *others][:limit]

    async def expired(self, limit: int) -> list[JobRow]:
        with self._data.lock:
            now = self._now()
            rows = [r for r in self._data.jobs.values() if maintenance.lease_lost(r, now)]
        return sorted(rows, key=lambda row: (row.lease_until or 0, row.serial))[:limit]

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        data = self._data
        with data.lock:
            now = self._now()
            keep = {state: getattr(retention, state.value) for state in FINAL}
            ended = sorted((r for r in data.jobs.values() if r.final), key=_ended)
            gone = [row for row in ended if _past_keeping(row, keep[row.state], now)][:limit]
            for row in gone:
                self._forget(row)
            bare = [
                row
                for row in ended
                if row.id in data.jobs
                and data.logs[row.id]
                and _past_keeping(row, retention.log, now)
            ][:limit]
            for row in bare:
                data.logs.pop(row.id)
                data.jobs[row.id] = replace(row, log_floor=row.seq - 1)
            dead = [key for key, e in data.entries.items() if not records.alive(e, now)]
            for key in dead:
                del data.entries[key]
            old = self._old_rollups(retention, now)
        return Pruned(len(gone), len(bare), len(dead), old)

    def _old_rollups(self, retention: Retention, now: Instant) -> int:
        until = maintenance.kept_until(now, retention.rollups)
        if until is None:
            return 0
        old = [key for key in self._data.rollups if key[0] < until]
        for key in old:
            del self._data.rollups[key]
        return len(old)

    def _forget(self, row: JobRow) -> None:
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

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[Answer]:
        answers = []
        with self._data.lock:
            for job_id in ids:
                row = self._visible(job_id, owner)
                if row is None:
                    answers.append(MISSING)
                elif not row.final:
                    answers.append(Answer(Status.CONFLICT, row.state))
                else:
                    self._forget(row)
                    answers.append(Answer(Status.APPLIED, row.state))
        return answers


def _ended(row: JobRow) -> tuple[Instant, int]:
    return row.ended_at or 0, row.serial


def _past_keeping(row: JobRow, seconds: float, now: Instant) -> bool:
    limit = maintenance.kept_until(now, seconds)
    return limit is not None and (row.ended_at or 0) <= limit
