"""Each installed peer runs a few jobs exactly once; the others are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from benchmarks.peers import SERVER_PEERS, load
from benchmarks.peers.comparison import compare
from benchmarks.peers.plan import BenchError, Plan
from benchmarks.peers.postgres.node.node_adapter import NodeAdapter
from benchmarks.peers.servers import DatabaseServer, postgres, redis

pytestmark = pytest.mark.slow
PLAN = Plan(jobs=200, rounds=1, only=("single", "concurrent", "bulk", "drain"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, DatabaseServer]]:
    """Outside of pytest's directory, which the user of the server cannot access."""
    with tempfile.TemporaryDirectory(prefix="windlass-peers-") as name, ExitStack() as stack:
        found: dict[str, DatabaseServer] = {
            "postgresql": stack.enter_context(postgres(Path(name), None))
        }
        with suppress(BenchError):  # no redis-server, no peers on it
            found["redis"] = stack.enter_context(redis(Path(name)))
        yield found


@pytest.mark.parametrize(
    "name", [name for name, module in SERVER_PEERS.items() if load(module).server]
)
def test_a_peer_runs_its_jobs_once(
    name: str, servers: dict[str, DatabaseServer], tmp_path: Path
) -> None:
    adapter = load(SERVER_PEERS[name])
    if issubclass(adapter, NodeAdapter) and not adapter.is_installed():
        pytest.skip(f"{name} is installed by npm when the benchmark first measures it")
    result = compare(PLAN, tmp_path, lambda *_: None, {name: SERVER_PEERS[name]}, servers=servers)
    if name in result.skipped:
        pytest.skip(result.skipped[name])
    found = result.systems[name]
    assert found.problems == []
    assert found.exactly_once
    methods = {method for method in ("bulk", "concurrent") if getattr(adapter, method)}
    assert {"single", "drain", *methods} == set(found.rounds[0].figures)
