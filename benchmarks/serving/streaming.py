"""How soon an event is at those who watch, and what becomes of those who do not read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.serving.children import child

WATCHERS = 10  # of each job
SIZE = 40  # characters of an event
LARGE = 32_000
SETTLE = 1.0  # seconds for the last events to arrive


@dataclass(frozen=True)
class Delays:
    """Seconds from a moment of the writer to the arrival at a reader, by one clock."""

    streams: int
    rate: float  # events a second that were to be said
    said: float  # and that were
    arrivals: int
    missing: int
    p50: float  # after the writer was told that the event is stored
    p99: float
    whole_p50: float  # after the writer began to write it
    whole_p99: float
    cpu: float = 0.0  # seconds of the server's CPU time for a thousand arrivals


def _delays(streams: int, rate: float, seconds: float, told: Any, came: Any) -> Delays:
    after, whole = [], []
    for number, before, stored in told:
        for at in came.get(str(number), ()):
            after.append(max(0.0, at - stored))
            whole.append(at - before)
    after.sort()
    whole.sort()
    lasted = max(stored for _, _, stored in told) - told[0][1]
    return Delays(
        streams=streams,
        rate=rate,
        said=len(told) / max(lasted, seconds),
        arrivals=len(after),
        missing=len(told) * WATCHERS - len(after),
        p50=after[len(after) // 2],
        p99=after[len(after) * 99 // 100],
        whole_p50=whole[len(whole) // 2],
        whole_p99=whole[len(whole) * 99 // 100],
    )


def streaming(url: str, *, jobs: int, rate: float, seconds: float) -> Delays:
    """`jobs` that speak in turn, each with ten watchers, at `rate` events a second in all."""
    with child("host", url) as server, child("speaker", url, str(jobs)) as speaker:
        where, ids = server.hear(), speaker.hear()
        with child("listeners", where["url"], where["key"]) as listeners:
            listeners.ask(jobs=ids, each=WATCHERS, stalled=False)
            before = server.spent
            told = speaker.ask(rate=rate, seconds=seconds, size=SIZE, jobs=list(range(jobs)))
            time.sleep(SETTLE)
            spent = server.spent - before
            came = listeners.ask()
    found = _delays(jobs * WATCHERS, rate, seconds, told, came)
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
    """Others watch job 0; who stalls has asked for job 1, which says more than sockets hold."""
    with child("host", url, "--stall", str(stall)) as server, child("speaker", url, "2") as speaker:
        where, [watched, loud] = server.hear(), speaker.hear()
        place = where["url"], where["key"]
        with child("listeners", *place) as listeners, child("listeners", *place) as sleepers:
            listeners.ask(jobs=[watched], each=WATCHERS, stalled=False)
            calm = speaker.ask(rate=rate, seconds=seconds, size=SIZE, jobs=[0])
            held = server.memory
            sleepers.ask(jobs=[loud], each=readers, stalled=True)
            began = time.time()
            told = []
            most = held
            while time.time() < began + stall + seconds:
                speaker.ask(rate=rate, seconds=0.5, size=LARGE, jobs=[1])
                told += speaker.ask(rate=rate, seconds=0.5, size=SIZE, jobs=[0])
                most = max(most, server.memory)
            ends = sleepers.ask()
            time.sleep(SETTLE)
            came = listeners.ask()
    return Stalled(
        readers=readers,
        before=_delays(WATCHERS, rate, seconds, calm, came),
        beside=_delays(WATCHERS, rate, seconds, told, came),
        memory_before=held,
        memory_most=most,
        longest=max(ends) - began,
    )
