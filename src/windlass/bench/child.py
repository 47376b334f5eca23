"""What each process of the bench does; `boot` starts it, with the module of a side and a role.

    fill SINGLES OTHERS       put in jobs one by one, then the others in bulk; tell how long it took
    trickle COUNT PAUSE GAP   one job to warm up, a pause, then one job after each gap
    work                      run jobs until SIGTERM

It works in the directory of its side, and ends when the bench that started it is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import NoReturn

from windlass.bench.ledger import Ledger, tell
from windlass.bench.peers import load
from windlass.bench.plan import BULK
from windlass.bench.side import Side, payload


def fill(side: Side, singles: int, others: int) -> None:
    """Time the first by themselves; the first job of all warms up, and counts for neither."""
    side.put(payload(0))
    first, last = max(1, singles), max(1, singles) + others
    began = time.monotonic()
    for number in range(1, first):
        side.put(payload(number))
    single = time.monotonic() - began
    texts = [payload(number) for number in range(first, last)]
    began = time.monotonic()
    if side.bulk is None:
        for text in texts:
            side.put(text)
    else:
        for start in range(0, len(texts), BULK):
            side.put_many(texts[start : start + BULK])
    bulk = time.monotonic() - began
    tell(
        event="filled",
        single=None if first == 1 else (first - 1) / single,
        bulk=None if side.bulk is None or not others else others / bulk,
    )


def trickle(side: Side, count: int, pause: float, gap: float) -> None:
    """Tell, for each job, when it was about to be put in, and when that was done."""
    side.put(payload(0))
    tell(event="pausing")
    time.sleep(pause)
    puts = []
    for number in range(1, count + 1):
        text = payload(number)
        before = time.monotonic_ns()
        side.put(text)
        puts.append((number, before, time.monotonic_ns()))
        time.sleep(gap)
    tell(event="trickled", puts=puts)


def work(side: Side) -> None:
    ledger = Ledger.here()
    try:
        side.work(ledger)
    finally:
        ledger.end()


def end_with_parent() -> None:
    """Our input ends when the bench does, however that dies."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, daemon=True).start()


def _end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise SystemExit


def main(words: Sequence[str]) -> None:
    end_with_parent()
    signal.signal(signal.SIGTERM, _end)
    module, role, *numbers = words
    side = load(module)(Path.cwd())
    with contextlib.suppress(SystemExit):
        match role:
            case "fill":
                fill(side, int(numbers[0]), int(numbers[1]))
                side.close()
            case "trickle":
                trickle(side, int(numbers[0]), float(numbers[1]), float(numbers[2]))
                side.close()
            case _:
                work(side)
