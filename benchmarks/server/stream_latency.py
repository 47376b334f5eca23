"""Latency of events at stream readers, and the effect of readers that do not read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.server.child_process import child

WATCHERS = 10  # of each job
SIZE = 40  # characters of an event
LARGE = 32_000
SETTLE = 1.0  # seconds for the last events to arrive


@dataclass(frozen=True)
class Delays:
    """Seconds from a moment of the writer to the arrival at a reader, by one clock."""

    streams: int
    rate: float  # requested events per second
    sent_rate: float  # and that were
    arrivals: int
    missing: int
    p50: float  # after the response to the writer
    p99: float
    whole_p50: float  # after the writer began to write it
    whole_p99: float
    cpu: float = 0.0  # seconds of the server's CPU time for a thousand arrivals


def _delays(streams: int, rate: float, seconds: float, reported: Any, arrived: Any) -> Delays:
    after, whole = [], []
    for number, before, stored in reported:
        for at in arrived.get(str(number), ()):
            after.append(max(0.0, at - stored))
            whole.append(at - before)
    after.sort()
    whole.sort()
    lasted = max(stored for _, _, stored in reported) - reported[0][1]
    return Delays(
        streams=streams,
        rate=rate,
        sent_rate=len(reported) / max(lasted, seconds),
        arrivals=len(after),
        missing=len(reported) * WATCHERS - len(after),
        p50=after[len(after) // 2],
        p99=after[len(after) * 99 // 100],
        whole_p50=whole[len(whole) // 2],
        whole_p99=whole[len(whole) * 99 // 100],
    )


def streaming(url: str, *, jobs: int, rate: float, seconds: float) -> Delays:
    """Write `rate` events per second over `jobs` in rotation, with ten readers each."""
    with child("host", url) as server, child("event_source", url, str(jobs)) as source:
        where, ids = server.receive(), source.receive()
        with child("listeners", where["url"], where["key"]) as listeners:
            listeners.ask(jobs=ids, each=WATCHERS, stalled=False)
            before = server.spent
            reported = source.ask(rate=rate, seconds=seconds, size=SIZE, jobs=list(range(jobs)))
            time.sleep(SETTLE)
            spent = server.spent - before
            arrived = listeners.ask()
    found = _delays(jobs * WATCHERS, rate, seconds, reported, arrived)
    return replace(found, cpu=1000 * spent / found.arrivals)


@dataclass(frozen=True)
class Stalled:
    """`before` is without stalled readers, `beside` with them; memory in bytes."""

    readers: int
    before: Delays
    beside: Delays
    memory_before: int
    memory_most: int
    longest: float  # seconds from the first event until the last of them was cut off


def stalled(url: str, *, readers: int, stall: float, rate: float, seconds: float) -> Stalled:
    """Normal readers follow job 0; stalled ones job 1, which writes more than sockets hold."""
    with (
        child("host", url, "--stall", str(stall)) as server,
        child("event_source", url, "2") as source,
    ):
        where, [watched, loud] = server.receive(), source.receive()
        place = where["url"], where["key"]
        with child("listeners", *place) as listeners, child("listeners", *place) as sleepers:
            listeners.ask(jobs=[watched], each=WATCHERS, stalled=False)
            calm = source.ask(rate=rate, seconds=seconds, size=SIZE, jobs=[0])
            held = server.memory
            sleepers.ask(jobs=[loud], each=readers, stalled=True)
            began = time.time()
            reported = []
            most = held
            while time.time() < began + stall + seconds:
                source.ask(rate=rate, seconds=0.5, size=LARGE, jobs=[1])
                reported += source.ask(rate=rate, seconds=0.5, size=SIZE, jobs=[0])
                most = max(most, server.memory)
            ends = sleepers.ask()
            time.sleep(SETTLE)
            arrived = listeners.ask()
    return Stalled(
        readers=readers,
        before=_delays(WATCHERS, rate, seconds, calm, arrived),
        beside=_delays(WATCHERS, rate, seconds, reported, arrived),
        memory_before=held,
        memory_most=most,
        longest=max(ends) - began,
    )
