"""Permits, and the capacity of a gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.factories import NOW, row
from tests.core.job_simulation import JobSimulation

from windlass.core.admission.limit import (
    Limit,
)
from windlass.core.admission.permits import (
    UNLIMITED,
    Permit,
    capacity,
    in_use,
    next_permit,
    with_start,
)
from windlass.core.clock import SECOND, Instant
from windlass.core.job.row import JobRow
from windlass.core.job.state import State


def at_gate(**overrides: Any) -> JobRow:
    values: dict[str, Any] = {"state": State.CREATED, "gates": ("queue:default",)}
    return replace(row(), **values | overrides)


def test_a_permit_is_in_use_while_its_attempt_can_start_or_runs() -> None:
    sim = JobSimulation.start()
    permit = next_permit(sim.row, NOW)
    assert (permit.fence, permit.at, permit.started_at) == (1, NOW, None)
    assert in_use(permit, sim.row)  # queued
    sim.wait(3).claim()
    assert in_use(permit, sim.row)
    assert with_start(permit, sim.row) == Permit(1, NOW, sim.row.started_at)
    for state in (State.RETRYING, State.SUCCEEDED, State.FAILED, State.CANCELED):
        assert not in_use(permit, replace(sim.row, state=state))
    assert not in_use(permit, replace(sim.row, fence=2))  # another attempt
    assert not in_use(permit, None)


def test_a_permit_is_in_use_while_its_job_waits_at_a_later_gate() -> None:
    permit = Permit(1, NOW)
    assert in_use(permit, at_gate(gate="queue:default"))
    assert not in_use(permit, at_gate(gate=None))  # before its first gate


def test_a_permit_keeps_the_start_of_its_attempt() -> None:
    permit = Permit(1, NOW)
    assert with_start(permit, row()) == permit
    assert with_start(permit, None) == Permit(1, NOW, NOW)  # deleted: the earliest possible start
    known = Permit(1, NOW, NOW + 5)
    assert with_start(known, None) == known
    later = replace(row(), fence=2, started_at=NOW + 9)  # of another attempt
    assert with_start(permit, later) == permit


# -- capacity


def test_without_a_limit_capacity_is_unlimited_and_permits_in_use_are_kept() -> None:
    free = capacity(None, [(Permit(1, NOW), True), (Permit(1, NOW, NOW), False)], NOW)
    assert (free.free, free.next_check_at, list(free.kept)) == (UNLIMITED, None, [True, False])


def test_a_start_counts_for_one_period() -> None:
    limit = Limit(starts=2, period=10)
    permits = [(Permit(1, NOW, NOW), False), (Permit(1, NOW, NOW + 4 * SECOND), True)]
    full = capacity(limit, permits, NOW + 5 * SECOND)
    assert (full.free, full.next_check_at, list(full.kept)) == (0, NOW + 10 * SECOND, [True, True])
    one = capacity(limit, permits, NOW + 10 * SECOND)
    assert (one.free, one.next_check_at, list(one.kept)) == (1, None, [False, True])


def test_a_permit_without_a_start_counts_from_now_on() -> None:
    limit = Limit(starts=1, period=10)
    queued = capacity(limit, [(Permit(1, NOW), True)], NOW + 60 * SECOND)
    assert (queued.free, queued.next_check_at) == (0, NOW + 70 * SECOND)
    assert capacity(limit, [(Permit(1, NOW), False)], NOW).free == 1  # it never starts


def test_after_a_lowered_limit_the_next_check_is_when_enough_starts_expired() -> None:
    permits = [(Permit(1, NOW, NOW + n * SECOND), False) for n in range(5)]
    lowered = capacity(Limit(starts=2, period=10), permits, NOW + 5 * SECOND)
    # Only one start counts then.
    assert (lowered.free, lowered.next_check_at) == (0, NOW + 13 * SECOND)


INSTANTS = st.integers(NOW - 30 * SECOND, NOW)
PERMITS = st.lists(
    st.tuples(
        st.builds(Permit, st.just(1), INSTANTS, st.none() | INSTANTS),
        st.booleans(),
    ),
    max_size=12,
)
COUNTS = st.none() | st.integers(1, 6)


class Gate:
    """A gate with its permits, and the jobs that it admitted."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.now: Instant = NOW
        self.waiting = 50
        self.rows: list[JobRow | None] = []
        self.permits: dict[int, Permit] = {}
        self.starts: list[Instant] = []

    def check(self) -> None:
        self.permits = {n: with_start(permit, self.rows[n]) for n, permit in self.permits.items()}
        checked = [(permit, in_use(permit, self.rows[n])) for n, permit in self.permits.items()]
        found = capacity(self.limit, checked, self.now)
        kept = zip(list(self.permits.items()), found.kept, strict=True)
        self.permits = dict(item for item, counts in kept if counts)
        for _ in range(min(found.free, self.waiting)):
            self.waiting -= 1
            self.rows.append(row(self.now))
            self.permits[len(self.rows) - 1] = next_permit(row(), self.now)

    def start(self) -> None:
        for n, job_row in enumerate(self.rows):
            if job_row is not None and job_row.state is State.QUEUED:
                self.rows[n] = JobSimulation(job_row, now=self.now).claim().row
                self.starts.append(self.now)

    def end(self) -> None:
        """End all queued and running jobs, and check the gate."""
        for n, job_row in enumerate(self.rows):
            if job_row is not None and not job_row.final:
                self.rows[n] = replace(job_row, state=State.CANCELED)
        self.check()

    def delete(self) -> None:
        self.rows = [
            None if job_row is not None and job_row.final else job_row for job_row in self.rows
        ]

    @property
    def running(self) -> int:
        return sum(job_row is not None and job_row.state is State.RUNNING for job_row in self.rows)


STEPS = st.lists(
    st.sampled_from(["check", "start", "end", "delete", "wait", "almost"]),
    min_size=10,
    max_size=30,
)
LIMITS = st.builds(
    lambda concurrency, starts, period: Limit(
        concurrency=concurrency, starts=starts, period=period
    ),
    st.none() | st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 2),
) | st.builds(lambda concurrency: Limit(concurrency=concurrency), st.integers(1, 4))
ONE_PER_SECOND = Limit(starts=1, period=1)


@settings(max_examples=150, deadline=None)
@given(LIMITS, STEPS)
@example(ONE_PER_SECOND, ["check", "wait", "check", "start"])  # a queued job counts until it starts
@example(
    ONE_PER_SECOND, ["check", "start", "end", "almost", "check", "start"]
)  # a microsecond too early
def test_never_more_jobs_run_or_start_than_the_limit(limit: Limit, steps: list[str]) -> None:
    gate = Gate(limit)
    for step in steps:
        if step in {"wait", "almost"}:
            gate.now += SECOND if step == "wait" else SECOND - 1
        else:
            getattr(gate, step)()
        assert limit.concurrency is None or gate.running <= limit.concurrency
    if limit.starts is not None:
        for last, nth in zip(gate.starts[limit.starts :], gate.starts, strict=False):
            assert last - nth >= limit.length, "too many starts in one period"


@given(PERMITS, COUNTS, st.integers(1, 6), st.integers(1, 40))
def test_capacity_is_free_exactly_at_the_next_check(
    permits: list[tuple[Permit, bool]], concurrency: int | None, starts: int, period: int
) -> None:
    limit = Limit(concurrency=concurrency, starts=starts, period=period)
    started = [(permit, holding) for permit, holding in permits if permit.started_at is not None]
    by_rate = replace(limit, concurrency=None)
    found = capacity(by_rate, started, NOW)
    if found.next_check_at is None:
        assert found.free > 0
    else:
        assert capacity(by_rate, started, found.next_check_at - 1).free == 0
        assert capacity(by_rate, started, found.next_check_at).free >= 1


@given(PERMITS, st.integers(1, 6), COUNTS)
def test_free_and_used_slots_never_exceed_the_limit(
    permits: list[tuple[Permit, bool]], concurrency: int, starts: int | None
) -> None:
    limit = Limit(concurrency=concurrency, starts=starts, period=None if starts is None else 10)
    found = capacity(limit, permits, NOW)
    holding = sum(holding for _, holding in permits)
    assert found.free + holding <= max(concurrency, holding)
    assert all(kept for (_, held), kept in zip(permits, found.kept, strict=True) if held)
