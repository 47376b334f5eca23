"""What must hold of every job at every moment, whatever happened, and of its whole past."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.admission.gates import Limit, limit_name
from windlass.core.event import Event, EventType, fold, snapshot
from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.core.job.state import WAITING, State


class Watch:
    """Remembers all that was ever seen, and objects when it is contradicted."""

    def __init__(self) -> None:
        self.rows: dict[UUID, JobRow] = {}
        self._events: dict[UUID, dict[int, Event]] = defaultdict(dict)
        self._holders: dict[tuple[UUID, int], UUID | None] = {}
        self.limits = WatchedLimits()

    def waiting(self) -> list[JobRow]:
        return [row for row in self.rows.values() if row.state in WAITING]

    def grant(self, rows: Iterable[JobRow]) -> None:
        """A claim handed these out: each under a fence that nobody else ever held."""
        for row in rows:
            assert row.state is State.RUNNING
            holder = self._holders.setdefault((row.id, row.fence), row.token)
            assert holder == row.token, "one lease, two holders"

    def see(self, rows: Sequence[JobRow]) -> list[UUID]:
        """All the jobs there are. Answers those that are new or changed."""
        self._check_together(rows)
        self.limits.see(rows)
        now = {row.id: row for row in reversed(rows)}  # oldest first
        for gone in self.rows.keys() - now.keys():
            assert self.rows[gone].final, "an unfinished job vanished"
            self._events.pop(gone, None)
            self._holders = {k: v for k, v in self._holders.items() if k[0] != gone}
        changed = [row for row in rows if row != self.rows.get(row.id)]
        for row in changed:
            _check_alone(row)
            before = self.rows.get(row.id)
            if before is not None:
                _check_step(before, row)
        self.rows = now
        return [row.id for row in changed]

    def read(self, job_id: UUID, events: Sequence[Event]) -> None:
        """A job's log, from the start: dense, telling the row's own story, never rewritten."""
        row = self.rows[job_id]
        assert [event.seq for event in events] == list(range(max(row.log_floor, 1), row.seq + 1))
        assert fold(events) == snapshot(row)
        assert (events[0].type is EventType.RESYNC) == (row.log_floor > 0)
        assert [event.at for event in events[1:]] == sorted(event.at for event in events[1:])
        percent = 0
        for event in events:
            if event.type is EventType.RESYNC:
                continue
            known = self._events[job_id].setdefault(event.seq, event)
            assert known == event, "an event changed after it was read"
            told = event.data.get("progressPct", event.data.get("percent", percent))
            assert told >= percent, "progress fell"
            percent = told

    def depends(self, job_id: UUID, edges: Edges) -> None:
        """A job that waits for others waits for those that have not ended, and for no other."""
        row = self.rows[job_id]
        parents = [self.rows[parent] for parent in edges.parents if parent in self.rows]
        active = sum(not parent.final for parent in parents)
        if row.state is State.CREATED:
            # A parent that was deleted and put in again, under its old id, is not waited for.
            before = [parent for parent in parents if parent.serial < row.serial]
            assert row.waiting_for == sum(not parent.final for parent in before)
        else:  # it may have waited for others before
            assert row.waiting_for <= active
        assert row.waiting_for == 0 or row.state in {State.CREATED, State.RETRYING}

    @staticmethod
    def _check_together(rows: Sequence[JobRow]) -> None:
        active = [row for row in rows if not row.final]
        keys = Counter(
            (row.owner, row.task, row.unique_key) for row in active if row.unique_key is not None
        )
        assert max(keys.values(), default=0) <= 1, "two active jobs of one unique key"
        requests = Counter((row.owner, row.request_id) for row in rows if row.request_id)
        assert max(requests.values(), default=0) <= 1, "two jobs of one request"
        retries = Counter(row.retry_of for row in active if row.retry_of is not None)
        assert max(retries.values(), default=0) <= 1, "two active retries of one job"
        standing = [row for row in rows if row.state is State.QUEUED or row.gate is not None]
        assert all(row.position is not None for row in standing), "a job without a place in line"
        places = [row.position for row in standing if row.limit_key is None]
        assert len(places) == len(set(places)), "two jobs in one place"


class WatchedLimits:
    """That no gate ever has more behind it, in line or running, than its limit says."""

    def __init__(self) -> None:
        self._limits: dict[str, Limit] = {}
        self._behind: dict[str, frozenset[UUID]] = {}  # jobs that were behind a gate, last time

    def set(self, name: str, limit: Limit) -> None:
        self._limits[name] = limit

    def lift(self, name: str) -> None:
        self._limits.pop(name, None)

    def see(self, rows: Sequence[JobRow]) -> None:
        behind: dict[str, set[UUID]] = defaultdict(set)
        for row in rows:
            for gate in _passed(row):
                behind[gate].add(row.id)
        for gate, ids in behind.items():
            limit = self._limits.get(limit_name(gate))
            if limit is not None and limit.concurrency is not None:
                # It may have been set or lowered since they passed: then nobody follows them.
                as_before = ids <= self._behind.get(gate, frozenset())
                assert len(ids) <= limit.concurrency or as_before, "more than the limit says"
        self._behind = {gate: frozenset(ids) for gate, ids in behind.items()}


def _passed(row: JobRow) -> tuple[str, ...]:
    """The gates that it has behind it, for the attempt that it runs or may begin."""
    if row.gate is not None:
        return row.gates[: row.gates.index(row.gate)]
    return row.gates if row.state in {State.QUEUED, State.RUNNING} else ()


def _check_alone(row: JobRow) -> None:
    assert (row.ended_at is not None) == row.final
    assert (row.lease_until is not None) == (row.state is State.RUNNING)
    if row.gate is not None:
        assert row.gate in row.gates
        assert row.state in WAITING - {State.QUEUED}
        assert (row.held, row.waiting_for, row.due_at) == (False, 0, None)
    assert (row.queued_at is None) == (
        row.state is State.CREATED or row.queued_seq == 0 == row.fence
    )
    assert 0 <= row.percent <= 100
    assert row.state is not State.SUCCEEDED or row.percent == 100
    assert row.fence == row.attempt >= row.retry_count + row.crash_count
    instants = [
        at
        for at in (row.created_at, row.queued_at, row.started_at, row.ended_at, row.updated_at)
        if at is not None
    ]
    assert instants == sorted(instants), "instants out of order"
    if row.state is State.RUNNING:
        assert row.token is not None
        assert row.worker is not None
        assert row.first_started_at is not None
        assert row.started_at is not None
        assert row.first_started_at <= row.started_at


def _check_step(before: JobRow, row: JobRow) -> None:
    """From one sight of a job to the next."""
    assert row.serial == before.serial
    assert row.created_at == before.created_at
    assert (row.gates, row.limit_key) == (before.gates, before.limit_key)
    assert row.fence >= before.fence, "the fence fell"
    assert row.percent >= before.percent, "progress fell"
    assert row.seq >= before.seq
    assert row.updated_at >= before.updated_at
    assert row.retry_count >= before.retry_count
    assert row.crash_count >= before.crash_count
    if before.final:
        unmarked = replace(row, retried_as=before.retried_as, log_floor=before.log_floor)
        assert unmarked == before, "a finished job changed"
    if row.state is not before.state:
        assert row.seq > before.seq, "a state changed without an event"
    if row.state is State.RUNNING and row.fence == before.fence:
        assert before.state is State.RUNNING, "a lease came back from the dead"
        assert row.token == before.token, "the holder changed under one fence"
        assert row.cancel_at == before.cancel_at or before.cancel_at is None
