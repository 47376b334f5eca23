"""A small run of the benchmark of the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.server.enqueue_throughput import measure_enqueues
from benchmarks.server.stream_latency import measure_stalled_readers, measure_stream_latency

pytestmark = pytest.mark.slow
MIB = 1024 * 1024


def test_stalled_readers_are_disconnected_without_affecting_others(tmp_path: Path) -> None:
    found = measure_stalled_readers(
        f"sqlite:///{tmp_path}/jobs.db", readers=100, stall=1, rate=50, seconds=3
    )
    assert found.longest < 30
    assert found.before.missing == found.during.missing == 0
    # Each event has 32 kB, so the unsent data of each reader would be far more.
    assert found.memory_most - found.memory_before < found.readers * 0.5 * MIB


def test_every_event_arrives_at_every_reader(tmp_path: Path) -> None:
    found = measure_stream_latency(f"sqlite:///{tmp_path}/jobs.db", jobs=5, rate=50, seconds=1)
    assert (found.arrivals, found.missing) == (500, 0)
    assert 0 <= found.p50 <= found.p99 <= found.whole_p99


def test_enqueues_are_compared_with_empty_requests(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    [found] = measure_enqueues("SQLite", url, clients=(4,), rounds=5, seconds=0.5)
    assert found.empty > 0
    assert found.ratio > 0
    assert 0 < found.by_cpu < 1.5  # a server that does no work would have a ratio far above 1
