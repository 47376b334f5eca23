"""Roles of the measured processes; `boot` starts one with the module of an adapter and a role.

    fill SINGLE CONCURRENT BULK       enqueue jobs one by one, then 100 calls at a time, then the
                                      rest in bulk; report the rates
    enqueue_spaced COUNT PAUSE GAP    one job to warm up, a pause, then one job after each gap
    work                              run jobs until SIGTERM
    watch                             report when every job has run and is settled

A process works in the directory of its round, and ends when the bench ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from benchmarks.peers import load
from benchmarks.peers.child.job_ledger import JobLedger, all_ran, open_counts
from benchmarks.peers.child.parent_channel import ParentChannel, send_event
from benchmarks.peers.plan import BULK_SIZE, CONCURRENT_CALLS
from benchmarks.peers.queue_adapter import QueueAdapter, payload
from benchmarks.peers.round_config import RoundConfig

CHECK_INTERVAL = 0.004  # seconds


def fill(adapter: QueueAdapter, single_jobs: int, concurrent_jobs: int, bulk_jobs: int) -> None:
    """Time each kind of enqueue separately; the first job warms up and is not timed."""
    adapter.enqueue(payload(0))
    payloads = [payload(number) for number in range(single_jobs + concurrent_jobs + bulk_jobs)]
    single, rest = payloads[1:single_jobs], payloads[single_jobs:]
    concurrent, bulk = rest[:concurrent_jobs], rest[concurrent_jobs:]
    single_rate = _rate(adapter.enqueue_each, [single])
    if adapter.concurrent is None:
        concurrent_rate = None
        adapter.enqueue_each(concurrent)
    else:
        concurrent_rate = _rate(adapter.enqueue_concurrently, _parts(concurrent, CONCURRENT_CALLS))
    if adapter.bulk is None:
        bulk_rate = None
        adapter.enqueue_each(bulk)
    else:
        bulk_rate = _rate(adapter.enqueue_bulk, _parts(bulk, BULK_SIZE))
    send_event(event="filled", single=single_rate, concurrent=concurrent_rate, bulk=bulk_rate)


def _parts(payloads: Sequence[str], size: int) -> list[Sequence[str]]:
    return [payloads[start : start + size] for start in range(0, len(payloads), size)]


def _rate(enqueue: Callable[[Sequence[str]], None], parts: list[Sequence[str]]) -> float | None:
    """Return jobs per second, or None without jobs."""
    began = time.monotonic()
    for part in parts:
        enqueue(part)
    return sum(map(len, parts)) / (time.monotonic() - began) or None


def enqueue_spaced(adapter: QueueAdapter, count: int, pause: float, gap: float) -> None:
    """Report the instants before and after the enqueue of each job."""
    adapter.enqueue(payload(0))
    send_event(event="pausing")
    adapter.pause(pause)
    calls = []
    for number in range(1, count + 1):
        text = payload(number)
        before = time.monotonic_ns()
        adapter.enqueue(text)
        calls.append((number, before, time.monotonic_ns()))
        adapter.pause(gap)
    send_event(event="enqueued", calls=calls)


def watch(adapter: QueueAdapter, config: RoundConfig) -> None:
    """Poll only the run counts while jobs run, and query the queue at the end."""
    counts = open_counts(config)
    adapter.unfinished()  # opens its connection
    send_event(event="watching")
    while not all_ran(config, counts):
        time.sleep(CHECK_INTERVAL)
    while adapter.unfinished():
        time.sleep(CHECK_INTERVAL)
    send_event(event="drained", at=time.monotonic_ns())


def _exit(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Exit immediately: the ledger has the results, and the queue is deleted."""
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    parent = ParentChannel()
    signal.signal(signal.SIGTERM, _exit)
    module, role, *numbers = arguments
    config = RoundConfig.load()
    adapter = load(module)(config)
    match role:
        case "fill":
            fill(adapter, int(numbers[0]), int(numbers[1]), int(numbers[2]))
            adapter.close()
        case "enqueue_spaced":
            enqueue_spaced(adapter, int(numbers[0]), float(numbers[1]), float(numbers[2]))
            adapter.close()
        case "watch":
            watch(adapter, config)
        case _:
            adapter.work(JobLedger(config, parent))


if __name__ == "__main__":
    main(sys.argv[1:])
