"""A small run of the benchmark of the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.server.enqueue_throughput import posting
from benchmarks.server.stream_latency import stalled, streaming

pytestmark = pytest.mark.slow
MIB = 1024 * 1024


def test_stalled_readers_are_disconnected_without_affecting_others(tmp_path: Path) -> None:
    found = stalled(f"sqlite:///{tmp_path}/jobs.db", readers=100, stall=1, rate=50, seconds=3)
    assert found.longest < 30
    assert found.before.missing == found.beside.missing == 0
    # Each event has 32 kB, so the unsent data of each reader would be far more.
    assert found.memory_most - found.memory_before < found.readers * 0.5 * MIB


def test_every_event_arrives_at_every_watcher(tmp_path: Path) -> None:
    found = streaming(f"sqlite:///{tmp_path}/jobs.db", jobs=5, rate=50, seconds=1)
    assert (found.arrivals, found.missing) == (500, 0)
    assert 0 <= found.p50 <= found.p99 <= found.whole_p99


def test_an_answer_about_a_job_is_held_against_an_empty_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    [found] = posting("SQLite", url, clients=(4,), rounds=5, seconds=0.5)
    assert found.empty > 0
    assert found.ratio > 0
    assert 0 < found.by_cpu < 1.5  # one that were worth nothing would be far above
