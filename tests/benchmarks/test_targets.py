"""The targets of the benchmark of peers on PostgreSQL."""

from __future__ import annotations

from benchmarks.peers.plan import Plan
from benchmarks.peers.results import ComparisonResult, SystemResult
from benchmarks.peers.round_result import RoundResult
from benchmarks.peers.targets import SERVER_TARGETS

POSTGRES, REDIS = "postgresql", "redis"


def evaluate(
    **systems: tuple[str, dict[str, float]],
) -> dict[str, tuple[float | None, bool | None]]:
    results = {
        name: SystemResult("1", "", None, server, [RoundResult(figures)])
        for name, (server, figures) in systems.items()
    }
    result = ComparisonResult(Plan.of(quick=True), {}, SERVER_TARGETS, results)
    return {target.text: (target.value, target.reached) for target in result.target_results()}


def test_a_drain_is_compared_with_the_fastest_peer_but_not_with_the_bare_table() -> None:
    found = evaluate(
        windlass=(POSTGRES, {"drain": 30.0}),
        bare=(POSTGRES, {"drain": 90.0}),
        slow=(POSTGRES, {"drain": 10.0}),
        fast=(REDIS, {"drain": 20.0}),
    )
    assert found["drain at least the fastest peer's"] == (1.5, True)


def test_concurrent_enqueues_are_compared_with_single_enqueues_on_postgresql() -> None:
    found = evaluate(
        windlass=(POSTGRES, {"concurrent": 70.0}),
        peer=(POSTGRES, {"single": 10.0, "concurrent": 50.0}),
        other=(REDIS, {"single": 60.0}),
    )
    text = "100 at a time at least 8x the fastest one by one on PostgreSQL"
    assert found[text] == (7.0, False)


def test_latency_is_compared_with_the_lowest_on_postgresql() -> None:
    found = evaluate(
        windlass=(POSTGRES, {"latency_p50": 3.0, "idle": 0.3}),
        best=(POSTGRES, {"latency_p50": 4.0, "idle": 0.0}),
        other=(REDIS, {"latency_p50": 1.0}),
    )
    assert found["latency p50 at most the best on PostgreSQL"] == (0.75, True)
    assert found["idle worker at most the best on PostgreSQL and 0.1 %"] == (0.3, False)


def test_an_unmeasured_target_is_neither_reached_nor_missed() -> None:
    assert set(evaluate(windlass=(POSTGRES, {})).values()) == {(None, None)}
