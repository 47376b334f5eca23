"""Limits and turns: what may pass, when to look again, and who stands where."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.factories import JOB, NOW, JobSimulation, row

from windlass.core.admission.gates import (
    affected_gates,
    describe_gate,
    gates_in_use,
    gates_of,
    limit_name,
    lock_order,
)
from windlass.core.admission.limit import (
    MAX_LIMIT,
    Limit,
    LimitSetting,
    check_limit_name,
    decode_limit,
)
from windlass.core.admission.permits import (
    UNLIMITED,
    Permit,
    capacity,
    in_use,
    next_permit,
    with_start,
)
from windlass.core.admission.queue_position import fair_position, queue_order
from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.decide import admit
from windlass.core.decisions.outcome import Succeeded
from windlass.core.duration import parse_rate
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

ALL = {"key:mail.send", "task:mail.send", "queue:default"}


# -- what a limit is


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10/s", (10, 1.0)), ("100/m", (100, 60.0)), ("1000/h", (1000, 3600.0)),
        ("100/1m", (100, 60.0)), ("5/1h30m", (5, 5400.0)), (" 5 / 100 ms ", (5, 0.1)),
        ("1/D", (1, 86_400.0)),
    ],
)  # fmt: skip
def test_a_rate_text_is_a_number_of_starts_in_a_period(
    text: str, wanted: tuple[int, float]
) -> None:
    assert parse_rate(text) == wanted
    assert Limit(rate=text) == Limit(starts=wanted[0], period=wanted[1])


@pytest.mark.parametrize("text", ["", "10", "/s", "ten/s", "10/", "-1/s", "1.5/s", "²/s", 10, None])
def test_an_invalid_rate_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgumentError, match='"100/1m"'):
        parse_rate(text)


def test_an_invalid_period_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the period of the rate '10/x'"):
        parse_rate("10/x")
    with pytest.raises(InvalidArgumentError, match="the period of the rate '10/60'"):
        parse_rate("10/60")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs concurrency= or rate="),
        ({"starts": 5}, "needs both"),
        ({"period": 5.0}, "needs concurrency= or rate="),
        ({"concurrency": 0}, "from 1 to 100,000"),
        ({"concurrency": MAX_LIMIT + 1}, "from 1 to 100,000"),
        ({"concurrency": True}, "an integer"),
        ({"concurrency": "5"}, "an integer"),
        ({"rate": "0/s"}, "starts is 0"),
        ({"rate": "5/0s"}, "between 1 ms and 10 years"),
        ({"rate": "5/s", "starts": 5, "period": 1.0}, "one rate"),
    ],
)
def test_an_invalid_limit_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        Limit(**given)


def test_a_limit_has_a_readable_text() -> None:
    assert str(Limit(concurrency=2)) == "2 at once"
    assert str(Limit(concurrency=1000, rate="100/1m")) == "1,000 at once, 100 starts in 60 s"
    assert replace(Limit(concurrency=2), concurrency=3) == Limit(concurrency=3)


def test_an_override_takes_effect_instead_of_the_declared_limit() -> None:
    code, person = Limit(concurrency=5), Limit(rate="1/s")
    assert LimitSetting(declared=code).limit == code
    assert LimitSetting(declared=code, override=person).limit == person
    assert LimitSetting().limit is None
    both = LimitSetting(declared=code, override=person)
    assert LimitSetting.decode(both.encode()) == both
    assert decode_limit(both.encode()) == person
    assert decode_limit(None) is None


# -- gates and their names


def test_gates_are_in_order_and_only_for_existing_limits() -> None:
    narrow, *others = gates_of("default", "mail.send", "ada", ALL)
    assert others == ["task:mail.send", "queue:default"]
    assert limit_name(narrow) == "key:mail.send"
    assert describe_gate(narrow) == "key 'ada' of task mail.send"
    assert gates_of("default", "mail.send", None, ALL) == ("task:mail.send", "queue:default")
    assert gates_of("other", "mail.send", "ada", {"queue:default"}) == ()
    assert gates_of("other", "mail.send", "ada", {"queue:other"}) == ("queue:other",)


def test_each_key_has_its_own_gate_and_shares_one_limit() -> None:
    [ada] = gates_of("q", "t", "ada", {"key:t"})
    [bob] = gates_of("q", "t", "bob", {"key:t"})
    assert ada != bob
    assert limit_name(ada) == limit_name(bob) == "key:t"


def test_gates_are_locked_from_narrow_to_wide() -> None:
    gates = gates_of("default", "mail.send", "ada", ALL)
    assert lock_order(reversed(gates)) == list(gates)
    assert (describe_gate("queue:a"), describe_gate("task:b")) == ("queue a", "task b")


@pytest.mark.parametrize("name", ["", "render", "queue:", "task:", "key:", "Queue:x", "worker:x"])
def test_an_invalid_limit_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="queue:NAME"):
        check_limit_name(name)


# -- permits


def at_gate(**overrides: Any) -> JobRow:
    asked: dict[str, Any] = {"state": State.CREATED, "gates": ("queue:default",)}
    return replace(row(), **asked | overrides)


def test_a_permit_is_in_use_while_its_attempt_can_start_or_runs() -> None:
    sim = JobSimulation.start()
    it = next_permit(sim.row, NOW)
    assert (it.fence, it.at, it.started_at) == (1, NOW, None)
    assert in_use(it, sim.row)  # in line
    sim.wait(3).claim()
    assert in_use(it, sim.row)
    assert with_start(it, sim.row) == Permit(1, NOW, sim.row.started_at)
    for state in (State.RETRYING, State.SUCCEEDED, State.FAILED, State.CANCELED):
        assert not in_use(it, replace(sim.row, state=state))
    assert not in_use(it, replace(sim.row, fence=2))  # another attempt
    assert not in_use(it, None)


def test_a_permit_is_in_use_while_its_job_waits_at_a_later_gate() -> None:
    it = Permit(1, NOW)
    assert in_use(it, at_gate(gate="queue:default"))
    assert not in_use(it, at_gate(gate=None))  # as it was before it came to any


def test_a_permit_keeps_the_start_of_its_attempt() -> None:
    it = Permit(1, NOW)
    assert with_start(it, row()) == it
    assert with_start(it, None) == Permit(1, NOW, NOW)  # deleted: at the earliest
    known = Permit(1, NOW, NOW + 5)
    assert with_start(known, None) == known
    later = replace(row(), fence=2, started_at=NOW + 9)  # of another attempt
    assert with_start(it, later) == it


def test_an_end_affects_all_gates_of_a_job() -> None:
    sim = JobSimulation.start().claim()
    assert affected_gates(sim.row, sim.settle(Succeeded())) == ()
    limited = JobSimulation(replace(row(), gates=("task:t", "queue:q"))).claim()
    before = limited.row
    assert affected_gates(before, limited.settle(Succeeded())) == ("task:t", "queue:q")


def test_an_admitted_job_moves_to_the_next_gate_and_then_into_the_queue() -> None:
    sim = JobSimulation(at_gate(gates=("task:t", "queue:q"), gate="task:t", position=1))
    before = sim.row
    assert affected_gates(before, sim.apply_decision(admit(before, NOW))) == ("queue:q",)
    assert (sim.row.state, sim.row.gate) == (State.CREATED, "queue:q")
    before = sim.row
    assert affected_gates(before, sim.apply_decision(admit(before, NOW))) == ()
    assert (sim.row.state, sim.row.gate) == (State.QUEUED, None)


def test_a_job_uses_each_passed_gate_until_its_attempt_ends() -> None:
    sim = JobSimulation(at_gate(gates=("task:t", "queue:q"), gate="task:t", position=1))
    seen = [gates_in_use(sim.row)]
    for _ in range(2):
        sim.apply_decision(admit(sim.row, NOW))
        seen.append(gates_in_use(sim.row))
    seen.append(gates_in_use(sim.claim().row))
    sim.settle(Succeeded())
    both = ("task:t", "queue:q")
    assert [*seen, gates_in_use(sim.row)] == [(), ("task:t",), both, both, ()]


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
    in_line = capacity(limit, [(Permit(1, NOW), True)], NOW + 60 * SECOND)
    assert (in_line.free, in_line.next_check_at) == (0, NOW + 70 * SECOND)
    assert capacity(limit, [(Permit(1, NOW), False)], NOW).free == 1  # it never will


def test_after_a_lowered_limit_the_next_check_is_when_enough_starts_expired() -> None:
    permits = [(Permit(1, NOW, NOW + n * SECOND), False) for n in range(5)]
    it = capacity(Limit(starts=2, period=10), permits, NOW + 5 * SECOND)
    assert (it.free, it.next_check_at) == (
        0,
        NOW + 13 * SECOND,
    )  # when only one is left that counts


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
    """A gate as a store keeps it, and the jobs behind it: in line, running, ended or deleted."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.now: Instant = NOW
        self.waiting = 50
        self.rows: list[JobRow | None] = []
        self.permits: dict[int, Permit] = {}
        self.starts: list[Instant] = []

    def look(self) -> None:
        self.permits = {n: with_start(it, self.rows[n]) for n, it in self.permits.items()}
        judged = [(it, in_use(it, self.rows[n])) for n, it in self.permits.items()]
        found = capacity(self.limit, judged, self.now)
        kept = zip(list(self.permits.items()), found.kept, strict=True)
        self.permits = dict(item for item, counts in kept if counts)
        for _ in range(min(found.free, self.waiting)):
            self.waiting -= 1
            self.rows.append(row(self.now))
            self.permits[len(self.rows) - 1] = next_permit(row(), self.now)

    def start(self) -> None:
        for n, its in enumerate(self.rows):
            if its is not None and its.state is State.QUEUED:
                self.rows[n] = JobSimulation(its, now=self.now).claim().row
                self.starts.append(self.now)

    def end(self) -> None:
        """All that run, or are still in line, are over; their gates are looked at with that."""
        for n, its in enumerate(self.rows):
            if its is not None and not its.final:
                self.rows[n] = replace(its, state=State.CANCELED)
        self.look()

    def delete(self) -> None:
        self.rows = [None if its is not None and its.final else its for its in self.rows]

    @property
    def running(self) -> int:
        return sum(its is not None and its.state is State.RUNNING for its in self.rows)


STEPS = st.lists(
    st.sampled_from(["look", "start", "end", "delete", "wait", "almost"]),
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
ONE = Limit(starts=1, period=1)


@settings(max_examples=150, deadline=None)
@given(LIMITS, STEPS)
@example(ONE, ["look", "wait", "look", "start"])  # one that stands in line counts for ever
@example(ONE, ["look", "start", "end", "almost", "look", "start"])  # a microsecond too early
def test_never_do_more_jobs_run_or_start_than_the_limit(limit: Limit, steps: list[str]) -> None:
    gate = Gate(limit)
    for step in steps:
        if step in {"wait", "almost"}:
            gate.now += SECOND if step == "wait" else SECOND - 1
        else:
            getattr(gate, step)()
        assert limit.concurrency is None or gate.running <= limit.concurrency
    if limit.starts is not None:
        for last, nth in zip(gate.starts[limit.starts :], gate.starts, strict=False):
            assert last - nth >= limit.length, "one start too many in a stretch of the period"


@given(PERMITS, COUNTS, st.integers(1, 6), st.integers(1, 40))
def test_capacity_is_free_exactly_at_the_next_check(
    permits: list[tuple[Permit, bool]], concurrency: int | None, starts: int, period: int
) -> None:
    limit = Limit(concurrency=concurrency, starts=starts, period=period)
    started = [(it, holding) for it, holding in permits if it.started_at is not None]
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


# -- turns


class Line:
    """A queue, as a store keeps it: `place` gives positions, the first is served."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, int, str | None]] = []  # position, arrival, key
        self.arrivals = 0

    def put(self, key: str | None) -> None:
        self.arrivals += 1
        first = min((at for at, _, _ in self.jobs), default=None)
        last = max((at for at, _, of in self.jobs if of == key), default=None)
        self.jobs.append((fair_position(key, self.arrivals, first, last), self.arrivals, key))
        self.jobs.sort(key=lambda job: job[:2])

    def serve(self) -> str | None:
        return self.jobs.pop(0)[2]

    def waiting(self) -> set[str | None]:
        return {key for _, _, key in self.jobs}


KEYS = st.sampled_from("abcd")


@given(st.lists(KEYS, max_size=40))
def test_no_key_gets_two_turns_more_than_a_waiting_key(keys: list[str]) -> None:
    line = Line()
    for key in keys:
        line.put(key)
    served: Counter[str | None] = Counter()
    while line.jobs:
        served[line.serve()] += 1
        behind = min((served[key] for key in line.waiting()), default=None)
        assert behind is None or max(served.values()) <= behind + 1


@settings(max_examples=200, deadline=None)
@given(st.lists(KEYS, max_size=12), st.sets(KEYS))
def test_no_key_is_served_more_than_twice_while_another_waits(
    keys: list[str], returning: set[str]
) -> None:
    """Returning jobs return each time after they ran."""
    line = Line()
    for key in keys:
        line.put(key)
    since: dict[str | None, Counter[str | None]] = {}  # who waits: how often others had a turn
    for _ in range(40):
        if not line.jobs:
            return
        served = line.serve()
        if served in returning:
            line.put(served)
        since = {one: since.get(one, Counter()) for one in line.waiting() if one != served}
        for others in since.values():
            others[served] += 1
            assert others[served] <= 2


def test_two_active_keys_do_not_starve_a_third() -> None:
    line = Line()
    for key in ("ada", "ada", "ada", "ada", "bob", "eve"):
        line.put(key)
    order = []
    for _ in range(9):
        order.append(line.serve())
        if order[-1] != "ada":
            line.put(order[-1])
    assert order.count("ada") >= 3


@given(st.lists(KEYS, max_size=40))
def test_jobs_of_one_key_and_jobs_without_a_key_stay_in_order(keys: list[str]) -> None:
    line = Line()
    for key in keys:
        line.put(None if key == "d" else key)
    for one in line.waiting():
        own = [arrival for _, arrival, of in line.jobs if of == one]
        assert own == sorted(own)


def test_jobs_without_a_key_are_in_arrival_order() -> None:
    assert fair_position(None, 7, 3, 5) == 7
    assert fair_position("ada", 7, None, None) == 7


def test_queue_order_is_priority_then_position() -> None:
    low, high = replace(row(), position=1, priority=0), replace(row(), position=9, priority=1)
    other = replace(low, id=UUID(int=JOB.int + 1))
    assert sorted([other, low, high], key=queue_order) == [high, low, other]
