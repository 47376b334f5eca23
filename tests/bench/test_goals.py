"""The comparisons in the benchmark of peers on PostgreSQL."""

from __future__ import annotations

from benchmarks.peers.goals import GOALS

from windlass.bench.plan import Plan
from windlass.bench.results import Result, SideResult
from windlass.bench.round import Round

POSTGRES, REDIS = "postgresql", "redis"


def verdicts(**sides: tuple[str, dict[str, float]]) -> dict[str, tuple[float | None, bool | None]]:
    made = {
        name: SideResult("1", "", None, server, [Round(figures)])
        for name, (server, figures) in sides.items()
    }
    result = Result(Plan.of(quick=True), {}, GOALS, made)
    return {target.text: (target.value, target.reached) for target in result.targets()}


def test_a_drain_is_compared_with_the_fastest_peer_and_not_with_the_bare_server() -> None:
    found = verdicts(
        windlass=(POSTGRES, {"drain": 30.0}),
        bare=(POSTGRES, {"drain": 90.0}),
        slow=(POSTGRES, {"drain": 10.0}),
        fast=(REDIS, {"drain": 20.0}),
    )
    assert found["drain at least the fastest peer's"] == (1.5, True)


def test_calls_at_once_are_compared_with_single_ones_on_postgresql() -> None:
    found = verdicts(
        windlass=(POSTGRES, {"together": 70.0}),
        peer=(POSTGRES, {"single": 10.0, "together": 50.0}),
        other=(REDIS, {"single": 60.0}),
    )
    text = "100 at a time at least 8x the fastest one by one on PostgreSQL"
    assert found[text] == (7.0, False)


def test_the_lowest_latency_on_postgresql_is_what_ours_must_not_exceed() -> None:
    found = verdicts(
        windlass=(POSTGRES, {"latency_p50": 3.0, "idle": 0.3}),
        best=(POSTGRES, {"latency_p50": 4.0, "idle": 0.0}),
        other=(REDIS, {"latency_p50": 1.0}),
    )
    assert found["latency p50 at most the best on PostgreSQL"] == (0.75, True)
    assert found["idle worker at most the best on PostgreSQL and 0.1 %"] == (0.3, False)


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    assert set(verdicts(windlass=(POSTGRES, {})).values()) == {(None, None)}
