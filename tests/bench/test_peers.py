"""Each installed peer runs a few jobs exactly once; the others are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from benchmarks.peers import PEERS
from benchmarks.peers.node import NodeSide
from benchmarks.peers.servers import postgres, redis
from tests.bench.conftest import ROOT

from windlass.bench.bench_run import measure
from windlass.bench.measured_process import BenchError
from windlass.bench.peers import load
from windlass.bench.plan import Plan
from windlass.bench.server import BenchServer

pytestmark = pytest.mark.slow
PLAN = Plan(jobs=200, rounds=1, only=("single", "together", "bulk", "drain"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, BenchServer]]:
    """Not below pytest's own directory, which the server's user may not enter."""
    with tempfile.TemporaryDirectory(prefix="windlass-peers-") as name, ExitStack() as stack:
        found: dict[str, BenchServer] = {
            "postgresql": stack.enter_context(postgres(Path(name), None))
        }
        with suppress(BenchError):  # no redis-server, no peers on it
            found["redis"] = stack.enter_context(redis(Path(name)))
        yield found


@pytest.mark.parametrize("name", [name for name, module in PEERS.items() if load(module).server])
def test_a_peer_runs_its_jobs_once(
    name: str, servers: dict[str, BenchServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    side = load(PEERS[name])
    if issubclass(side, NodeSide) and not side.there():
        pytest.skip(f"{name} is installed by npm when the benchmark first measures it")
    result = measure(PLAN, tmp_path, lambda *_: None, {name: PEERS[name]}, servers=servers)
    if name in result.skipped:
        pytest.skip(result.skipped[name])
    found = result.sides[name]
    assert found.problems == []
    assert found.exactly_once
    ways = {way for way in ("bulk", "together") if getattr(side, way)}
    assert {"single", "drain", *ways} == set(found.rounds[0].figures)
