"""Roles of the bench processes; `child_boot` starts one with the module of a side and a role.

    fill SINGLES TOGETHER OTHERS   enqueue jobs one by one, then 100 calls at a time, then the
                                   others in bulk; report the rates
    trickle COUNT PAUSE GAP        one job to warm up, a pause, then one job after each gap
    work                           run jobs until SIGTERM
    watch                          report when every job has run and is settled

A process works in the directory of its side, and ends when the bench ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from windlass.bench.job_ledger import BenchParent, Ledger, all_ran, counts_of, send_event
from windlass.bench.peers import load
from windlass.bench.plan import BULK, TOGETHER
from windlass.bench.round_config import RoundConfig
from windlass.bench.side import Side, payload

CHECK_EVERY = 0.004  # seconds


def fill(side: Side, singles: int, together: int, others: int) -> None:
    """Time each kind of enqueue separately; the first job warms up and is not timed."""
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
    send_event(event="filled", single=each_rate, together=some_rate, bulk=many_rate)


def _parts(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def _timed(put: Callable[[Sequence[str]], None], parts: list[Sequence[str]]) -> float | None:
    """Return jobs per second, or None without jobs."""
    began = time.monotonic()
    for part in parts:
        put(part)
    return sum(map(len, parts)) / (time.monotonic() - began) or None


def trickle(side: Side, count: int, pause: float, gap: float) -> None:
    """Report the instants before and after the enqueue of each job."""
    side.put(payload(0))
    send_event(event="pausing")
    side.pause(pause)
    puts = []
    for number in range(1, count + 1):
        text = payload(number)
        before = time.monotonic_ns()
        side.put(text)
        puts.append((number, before, time.monotonic_ns()))
        side.pause(gap)
    send_event(event="trickled", puts=puts)


def watch(side: Side, config: RoundConfig) -> None:
    """Poll only the run counts while jobs run, and query the queue at the end."""
    counts = counts_of(config)
    side.unfinished()  # opens its connection
    send_event(event="watching")
    while not all_ran(config, counts):
        time.sleep(CHECK_EVERY)
    while side.unfinished():
        time.sleep(CHECK_EVERY)
    send_event(event="drained", at=time.monotonic_ns())


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Exit at once: the ledger has the results, and the queue is deleted."""
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    parent = BenchParent()
    signal.signal(signal.SIGTERM, _end)
    module, role, *numbers = arguments
    config = RoundConfig.load()
    side = load(module)(config)
    match role:
        case "fill":
            fill(side, int(numbers[0]), int(numbers[1]), int(numbers[2]))
            side.close()
        case "trickle":
            trickle(side, int(numbers[0]), float(numbers[1]), float(numbers[2]))
            side.close()
        case "watch":
            watch(side, config)
        case _:
            side.work(Ledger(config, parent))
