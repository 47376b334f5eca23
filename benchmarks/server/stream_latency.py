"""Latency of events at stream readers, and the effect of readers that do not read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.server.child_process import start_child

WATCHERS = 10  # of each job
SIZE = 40  # characters of an event
LARGE = 32_000
SETTLE = 1.0  # seconds for the last events to arrive


@dataclass(frozen=True)
class StreamLatency:
    """Seconds from the write of an event to its arrival at a reader, by one clock."""

    streams: int
    rate: float  # requested events per second
    sent_rate: float  # written events per second
    arrivals: int
    missing: int
    p50: float  # from the response to the writer
    p99: float
    whole_p50: float  # from the start of the write
    whole_p99: float
    cpu: float = 0.0  # seconds of the server's CPU time for a thousand arrivals


def _stream_latency(
    streams: int, rate: float, seconds: float, reported: Any, arrived: Any
) -> StreamLatency:
    after, whole = [], []
    for number, before, stored in reported:
        for at in arrived.get(str(number), ()):
            after.append(max(0.0, at - stored))
            whole.append(at - before)
    after.sort()
    whole.sort()
    lasted = max(stored for _, _, stored in reported) - reported[0][1]
    return StreamLatency(
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


def measure_stream_latency(url: str, *, jobs: int, rate: float, seconds: float) -> StreamLatency:
    """Write `rate` events per second over `jobs` in rotation, with ten readers each."""
    with (
        start_child("measured_server", url) as server,
        start_child("event_source", url, str(jobs)) as source,
    ):
        where, ids = server.receive(), source.receive()
        with start_child("stream_readers", where["url"], where["key"]) as reader_process:
            reader_process.call(jobs=ids, each=WATCHERS, stalled=False)
            before = server.cpu_seconds
            reported = source.call(rate=rate, seconds=seconds, size=SIZE, jobs=list(range(jobs)))
            time.sleep(SETTLE)
            spent = server.cpu_seconds - before
            arrived = reader_process.call()
    found = _stream_latency(jobs * WATCHERS, rate, seconds, reported, arrived)
    return replace(found, cpu=1000 * spent / found.arrivals)


@dataclass(frozen=True)
class StalledReaders:
    """`before` is without stalled readers, `during` with them; memory in bytes."""

    readers: int
    before: StreamLatency
    during: StreamLatency
    memory_before: int
    memory_most: int
    longest: float  # seconds from the first event until the last stalled reader was disconnected


def measure_stalled_readers(
    url: str, *, readers: int, stall: float, rate: float, seconds: float
) -> StalledReaders:
    """Normal readers follow job 0; stalled ones job 1, which writes more than sockets hold."""
    with (
        start_child("measured_server", url, "--stall", str(stall)) as server,
        start_child("event_source", url, "2") as source,
    ):
        where, [watched, busy] = server.receive(), source.receive()
        place = where["url"], where["key"]
        with (
            start_child("stream_readers", *place) as reader_process,
            start_child("stream_readers", *place) as stalled_process,
        ):
            reader_process.call(jobs=[watched], each=WATCHERS, stalled=False)
            baseline = source.call(rate=rate, seconds=seconds, size=SIZE, jobs=[0])
            memory_before = server.memory
            stalled_process.call(jobs=[busy], each=readers, stalled=True)
            began = time.time()
            reported = []
            most = memory_before
            while time.time() < began + stall + seconds:
                source.call(rate=rate, seconds=0.5, size=LARGE, jobs=[1])
                reported += source.call(rate=rate, seconds=0.5, size=SIZE, jobs=[0])
                most = max(most, server.memory)
            closed_at = stalled_process.call()
            time.sleep(SETTLE)
            arrived = reader_process.call()
    return StalledReaders(
        readers=readers,
        before=_stream_latency(WATCHERS, rate, seconds, baseline, arrived),
        during=_stream_latency(WATCHERS, rate, seconds, reported, arrived),
        memory_before=memory_before,
        memory_most=most,
        longest=max(closed_at) - began,
    )
