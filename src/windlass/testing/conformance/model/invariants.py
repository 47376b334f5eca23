"""Invariants of every job row and every job history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.admission.gates import limit_name
from windlass.core.admission.limit import Limit
from windlass.core.event import Event, EventType
from windlass.core.job.dependency import Edges
from windlass.core.job.event_log import expected_fold, fold
from windlass.core.job.row import JobRow
from windlass.core.job.state import WAITING, State


class InvariantChecker:
    """Keeps all rows and events read so far, and asserts that later reads agree with them."""

    def __init__(self) -> None:
        self.rows: dict[UUID, JobRow] = {}
        self._events: dict[UUID, dict[int, Event]] = defaultdict(dict)
        self._holders: dict[tuple[UUID, int], UUID | None] = {}
        self.limits = LimitChecker()

    def waiting(self) -> list[JobRow]:
        return [row for row in self.rows.values() if row.state in WAITING]

    def check_claimed(self, rows: Iterable[JobRow]) -> None:
        """Check claimed rows: each fence has only one holder, ever."""
        for row in rows:
            assert row.state is State.RUNNING
            holder = self._holders.setdefault((row.id, row.fence), row.token)
            assert holder == row.token, "one lease, two holders"

    def update(self, rows: Sequence[JobRow]) -> list[UUID]:
        """Check all rows of the store; return the ids of new and changed jobs."""
        self._check_uniqueness(rows)
        self.limits.check(rows)
        now = {row.id: row for row in reversed(rows)}  # oldest first
        for deleted in self.rows.keys() - now.keys():
            assert self.rows[deleted].final, "an unfinished job vanished"
            self._events.pop(deleted, None)
            self._holders = {k: v for k, v in self._holders.items() if k[0] != deleted}
        changed = [row for row in rows if row != self.rows.get(row.id)]
        for row in changed:
            _check_row(row)
            before = self.rows.get(row.id)
            if before is not None:
                _check_change(before, row)
        self.rows = now
        return [row.id for row in changed]

    def check_log(self, job_id: UUID, events: Sequence[Event]) -> None:
        """Check a whole log: dense, consistent with the row, and never rewritten."""
        row = self.rows[job_id]
        assert [event.seq for event in events] == list(range(max(row.log_floor, 1), row.seq + 1))
        assert fold(events) == expected_fold(row)
        assert (events[0].type is EventType.RESYNC) == (row.log_floor > 0)
        assert [event.at for event in events[1:]] == sorted(event.at for event in events[1:])
        percent = 0
        for event in events:
            if event.type is EventType.RESYNC:
                continue
            first = self._events[job_id].setdefault(event.seq, event)
            assert first == event, "an event changed after it was read"
            reported = event.data.get("progressPct", event.data.get("percent", percent))
            assert reported >= percent, "progress fell"
            percent = reported

    def check_edges(self, job_id: UUID, edges: Edges) -> None:
        """Check that a job waits for exactly those parents that have not ended."""
        row = self.rows[job_id]
        parents = [self.rows[parent] for parent in edges.parents if parent in self.rows]
        active = sum(not parent.final for parent in parents)
        if row.state is State.CREATED:
            # A job does not wait for a parent that was deleted and enqueued again under its old id.
            before = [parent for parent in parents if parent.serial < row.serial]
            assert row.waiting_for == sum(not parent.final for parent in before)
        else:  # it may have waited for other jobs before
            assert row.waiting_for <= active
        assert row.waiting_for == 0 or row.state in {State.CREATED, State.RETRYING}

    @staticmethod
    def _check_uniqueness(rows: Sequence[JobRow]) -> None:
        active = [row for row in rows if not row.final]
        keys = Counter(
            (row.owner, row.task, row.unique_key) for row in active if row.unique_key is not None
        )
        assert max(keys.values(), default=0) <= 1, "two active jobs of one unique key"
        requests = Counter((row.owner, row.request_id) for row in rows if row.request_id)
        assert max(requests.values(), default=0) <= 1, "two jobs of one request"
        retries = Counter(row.retry_of for row in active if row.retry_of is not None)
        assert max(retries.values(), default=0) <= 1, "two active retries of one job"
        waiting = [row for row in rows if row.state is State.QUEUED or row.gate is not None]
        assert all(row.position is not None for row in waiting), "a waiting job without a position"
        positions = [row.position for row in waiting if row.limit_key is None]
        assert len(positions) == len(set(positions)), "two jobs with one position"


class LimitChecker:
    """Asserts that no gate ever admits more jobs than its concurrency limit."""

    def __init__(self) -> None:
        self._limits: dict[str, Limit] = {}
        self._admitted: dict[str, frozenset[UUID]] = {}  # jobs of each gate at the last check

    def set(self, name: str, limit: Limit) -> None:
        self._limits[name] = limit

    def remove(self, name: str) -> None:
        self._limits.pop(name, None)

    def check(self, rows: Sequence[JobRow]) -> None:
        admitted: dict[str, set[UUID]] = defaultdict(set)
        for row in rows:
            for gate in _admitted_by(row):
                admitted[gate].add(row.id)
        for gate, ids in admitted.items():
            limit = self._limits.get(limit_name(gate))
            if limit is not None and limit.concurrency is not None:
                # The limit may have been lowered since: then no new job may be admitted.
                as_before = ids <= self._admitted.get(gate, frozenset())
                assert len(ids) <= limit.concurrency or as_before, "more jobs than the limit"
        self._admitted = {gate: frozenset(ids) for gate, ids in admitted.items()}


def _admitted_by(row: JobRow) -> tuple[str, ...]:
    """Return the gates that have admitted the job for its current or next attempt."""
    if row.gate is not None:
        return row.gates[: row.gates.index(row.gate)]
    return row.gates if row.state in {State.QUEUED, State.RUNNING} else ()


def _check_row(row: JobRow) -> None:
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


def _check_change(before: JobRow, row: JobRow) -> None:
    """Check the change of a row between two reads."""
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
        assert before.state is State.RUNNING, "an expired lease became valid again"
        assert row.token == before.token, "the holder changed under one fence"
        assert row.cancel_at == before.cancel_at or before.cancel_at is None
