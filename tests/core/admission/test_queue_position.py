"""Fair queue positions: keys alternate, and no key starves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.factories import JOB, row

from windlass.core.admission.queue_position import fair_position, queue_order


class SimulatedQueue:
    """A queue as a store keeps it: the job with the lowest position runs first."""

    def __init__(self) -> None:
        self.jobs: list[tuple[int, int, str | None]] = []  # position, arrival, key
        self.arrivals = 0

    def enqueue(self, key: str | None) -> None:
        self.arrivals += 1
        first = min((at for at, _, _ in self.jobs), default=None)
        last = max((at for at, _, of in self.jobs if of == key), default=None)
        self.jobs.append((fair_position(key, self.arrivals, first, last), self.arrivals, key))
        self.jobs.sort(key=lambda job: job[:2])

    def run_next(self) -> str | None:
        return self.jobs.pop(0)[2]

    def waiting(self) -> set[str | None]:
        return {key for _, _, key in self.jobs}


KEYS = st.sampled_from("abcd")


@given(st.lists(KEYS, max_size=40))
def test_no_key_gets_two_turns_more_than_a_waiting_key(keys: list[str]) -> None:
    queue = SimulatedQueue()
    for key in keys:
        queue.enqueue(key)
    served: Counter[str | None] = Counter()
    while queue.jobs:
        served[queue.run_next()] += 1
        behind = min((served[key] for key in queue.waiting()), default=None)
        assert behind is None or max(served.values()) <= behind + 1


@settings(max_examples=200, deadline=None)
@given(st.lists(KEYS, max_size=12), st.sets(KEYS))
def test_no_key_is_served_more_than_twice_while_another_waits(
    keys: list[str], returning: set[str]
) -> None:
    """The jobs of returning keys are enqueued again after each run."""
    queue = SimulatedQueue()
    for key in keys:
        queue.enqueue(key)
    since: dict[
        str | None, Counter[str | None]
    ] = {}  # per waiting key: turns of other keys since then
    for _ in range(40):
        if not queue.jobs:
            return
        served = queue.run_next()
        if served in returning:
            queue.enqueue(served)
        since = {one: since.get(one, Counter()) for one in queue.waiting() if one != served}
        for others in since.values():
            others[served] += 1
            assert others[served] <= 2


def test_two_active_keys_do_not_starve_another() -> None:
    queue = SimulatedQueue()
    for key in ("ada", "ada", "ada", "ada", "bob", "eve"):
        queue.enqueue(key)
    order = []
    for _ in range(9):
        order.append(queue.run_next())
        if order[-1] != "ada":
            queue.enqueue(order[-1])
    assert order.count("ada") >= 3


@given(st.lists(KEYS, max_size=40))
def test_jobs_of_one_key_and_jobs_without_a_key_stay_in_order(keys: list[str]) -> None:
    queue = SimulatedQueue()
    for key in keys:
        queue.enqueue(None if key == "d" else key)
    for one in queue.waiting():
        own = [arrival for _, arrival, of in queue.jobs if of == one]
        assert own == sorted(own)


def test_jobs_without_a_key_are_in_arrival_order() -> None:
    assert fair_position(None, 7, 3, 5) == 7
    assert fair_position("ada", 7, None, None) == 7


def test_queue_order_is_priority_then_position() -> None:
    low, high = replace(row(), position=1, priority=0), replace(row(), position=9, priority=1)
    other = replace(low, id=UUID(int=JOB.int + 1))
    assert sorted([other, low, high], key=queue_order) == [high, low, other]
