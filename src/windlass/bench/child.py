"""What each process of the bench does; `boot` starts it, with the module of a side and a role.

    fill SINGLES TOGETHER OTHERS   put in jobs one by one, then a hundred calls at a time, then the
                                   others in bulk; tell how fast
    trickle COUNT PAUSE GAP        one job to warm up, a pause, then one job after each gap
    work                           run jobs until SIGTERM
    watch                          tell when every job has run and none is left to be settled

It works in the directory of its side, and ends when the bench that started it is gone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from windlass.bench.job_ledger import Ledger, Parent, all_ran, counts_of, tell
from windlass.bench.peers import load
from windlass.bench.plan import BULK, TOGETHER
from windlass.bench.round_config import Place
from windlass.bench.side import Side, payload

LOOK = 0.004  # seconds


def fill(side: Side, singles: int, together: int, others: int) -> None:
    """Each kind is timed by itself; the first job of all warms up, and counts for none."""
    side.put(payload(0))
    texts = [payload(number) for number in range(singles + together + others)]
    each, some = texts[1:singles], texts[singles : singles + together]
    many = texts[singles + together :]
    if side.together is None:
        each_rate, some_rate = _timed(side.put_each, [each]), None
        side.put_each(some)
    else:
        each_rate = _timed(side.put_each, [each])
        some_rate = _timed(side.put_together, _parts(some, TOGETHER))
    if side.bulk is None:
        many_rate = None
        side.put_each(many)
    else:
        many_rate = _timed(side.put_many, _parts(many, BULK))
    tell(event="filled", single=each_rate, together=some_rate, bulk=many_rate)


def _parts(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def _timed(put: Callable[[Sequence[str]], None], parts: list[Sequence[str]]) -> float | None:
    """Jobs a second; None if there are none."""
    began = time.monotonic()
    for part in parts:
        put(part)
    return sum(map(len, parts)) / (time.monotonic() - began) or None


def trickle(side: Side, count: int, pause: float, gap: float) -> None:
    """Tell, for each job, when it was about to be put in, and when that was done."""
    side.put(payload(0))
    tell(event="pausing")
    side.rest(pause)
    puts = []
    for number in range(1, count + 1):
        text = payload(number)
        before = time.monotonic_ns()
        side.put(text)
        puts.append((number, before, time.monotonic_ns()))
        side.rest(gap)
    tell(event="trickled", puts=puts)


def watch(side: Side, place: Place) -> None:
    """Only the counts are looked at while jobs run; the queue itself is asked at the end."""
    counts = counts_of(place)
    side.unfinished()  # its connection is open from now on
    tell(event="watching")
    while not all_ran(place, counts):
        time.sleep(LOOK)
    while side.unfinished():
        time.sleep(LOOK)
    tell(event="drained", at=time.monotonic_ns())


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """At once: what counts is in the ledger, and the queue is thrown away."""
    os._exit(0)


def main(words: Sequence[str]) -> None:
    parent = Parent()
    signal.signal(signal.SIGTERM, _end)
    module, role, *numbers = words
    place = Place.here()
    side = load(module)(place)
    match role:
        case "fill":
            fill(side, int(numbers[0]), int(numbers[1]), int(numbers[2]))
            side.close()
        case "trickle":
            trickle(side, int(numbers[0]), float(numbers[1]), float(numbers[2]))
            side.close()
        case "watch":
            watch(side, place)
        case _:
            side.work(Ledger(place, parent))
