"""Gates: their names and order, and how jobs pass them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.core.factories import NOW, row
from tests.core.job_simulation import JobSimulation

from windlass.core.admission.gates import (
    affected_gates,
    describe_gate,
    gates_in_use,
    gates_of,
    limit_name,
    lock_order,
)
from windlass.core.decisions.decide import admit
from windlass.core.decisions.outcome import Succeeded
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

ALL = {"key:mail.send", "task:mail.send", "queue:default"}


def at_gate(**overrides: Any) -> JobRow:
    values: dict[str, Any] = {"state": State.CREATED, "gates": ("queue:default",)}
    return replace(row(), **values | overrides)


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
