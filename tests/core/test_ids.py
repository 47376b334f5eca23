"""UUIDv7: the bits, the order, threads, and forks."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest

from windlass.core.ids import Uuid7Source, uuid7

MILLISECOND = 1_000_000


def milliseconds(value: UUID) -> int:
    return value.int >> 80


def test_version_and_variant_are_those_of_uuid7() -> None:
    for _ in range(1000):
        made = uuid7()
        assert made.version == 7
        assert made.variant == RFC_4122


def test_the_first_48_bits_are_the_milliseconds() -> None:
    before = time.time_ns() // MILLISECOND
    made = Uuid7Source()()
    assert before <= milliseconds(made) <= time.time_ns() // MILLISECOND


def test_ids_increase_within_a_process() -> None:
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_increase_in_each_thread_and_never_repeat() -> None:
    source = Uuid7Source()
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: [source() for _ in range(2000)], range(8)))
    for part in parts:
        assert part == sorted(part)
    assert len({made for part in parts for made in part}) == 16_000


def test_ids_increase_while_the_clock_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5_000 * MILLISECOND)
    source = Uuid7Source()
    made = [source() for _ in range(5000)]
    assert made == sorted(set(made))
    assert {milliseconds(value) for value in made} == {5_000}


def test_ids_increase_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Uuid7Source()
    instants = iter([9_000, 8_000, 1, 9_000, 9_001, 4])
    monkeypatch.setattr(time, "time_ns", lambda: next(instants) * MILLISECOND)
    made = [source() for _ in range(6)]
    assert made == sorted(set(made))
    assert [milliseconds(value) for value in made] == [9_000, 9_000, 9_000, 9_000, 9_001, 9_001]


def test_a_full_counter_starts_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5_000 * MILLISECOND)
    source = Uuid7Source()
    first = source()
    source._counter = (1 << 74) - 1
    made = [source() for _ in range(3)]
    assert [first, *made] == sorted({first, *made})
    assert {milliseconds(value) for value in made} == {5_001}
    assert all(value.version == 7 and value.variant == RFC_4122 for value in made)


def test_the_random_bits_are_fresh_in_every_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    instants = iter(range(1, 2001))
    monkeypatch.setattr(time, "time_ns", lambda: next(instants) * MILLISECOND)
    source = Uuid7Source()
    tails = {source().int & ((1 << 62) - 1) for _ in range(2000)}
    assert len(tails) == 2000


# In a separate process, because a fork of the test process would copy its threads. The clock is
# stopped, so that a child that continued its parent's counter would generate an id close to it.
FORK = """
import os, time
time.time_ns = lambda: 5_000_000_000
from windlass.core.ids import uuid7
uuid7()
reader, writer = os.pipe()
with uuid7._lock:  # another thread may hold it at the moment of the fork
    child = os.fork()
    if child == 0:
        os.write(writer, str(uuid7().int).encode())
        os._exit(0)
os.waitpid(child, 0)
print(os.read(reader, 100).decode(), uuid7().int)
"""


def test_a_forked_child_generates_other_ids() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=20, check=True
    )
    child, parent = (UUID(int=int(number)) for number in ran.stdout.split())
    assert child != parent
    assert child.version == parent.version == 7
    assert milliseconds(child) == milliseconds(parent)
    # Steps within a millisecond are below 2^32: two sources that share a counter stay that near.
    assert abs(child.int - parent.int) > 2**40
