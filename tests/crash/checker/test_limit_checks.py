"""The checker reports each single change of the evidence of a correct storm with limits."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.chaos.checks.checker import check
from benchmarks.chaos.checks.evidence import gather
from benchmarks.chaos.checks.intervals import below, common, longest, most_of
from benchmarks.chaos.checks.limit_checks import Stint, seen, stints
from benchmarks.chaos.processes import Mix
from benchmarks.chaos.storms import Plan, Storm, run

pytestmark = pytest.mark.slow

KEY, TASK, QUEUE = "key:benchmarks.chaos.tasks.keyed", "task:benchmarks.chaos.tasks.rated", "queue"
STARTS, PERIOD = 6, 0.4
LIMITS: dict[str, dict[str, float]] = {
    "queue:default": {"concurrency": 3},
    TASK: {"starts": STARTS, "period": PERIOD},
    KEY: {"concurrency": 1},
}
CALM = Storm(
    name="limit",
    mix=Mix(tasks={"work": 1, "rated": 2, "keyed": 3}, cancels=0.1, limits=LIMITS),
    producers=1,
)
LATER = 60_000_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("storm") / "limit"
    verdict = run(CALM, Plan(jobs=60, seconds=60, seed=7, workers=2), place)
    assert verdict.violations == []
    assert verdict.gates is not None
    assert verdict.gates.most.keys() == LIMITS.keys()
    assert verdict.gates.waited > 0
    return place


@pytest.fixture
def place(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "storm"))


def complaints(place: Path) -> str:
    return "\n".join(check(gather(place)))


def at_gate(place: Path, limit: str) -> list[Stint]:
    """The attempts that ended their jobs, and started, at the gate where most did."""
    found: dict[str, list[Stint]] = {}
    for stint in stints(gather(place)):
        for gate in stint.gates:
            if gate.startswith(limit) and stint.started and stint.outcome == "succeed":
                found.setdefault(gate, []).append(stint)
    most: list[Stint] = max(found.values(), key=len)
    return sorted(most, key=began)


def change(place: Path, stint: Stint, **instants: int) -> None:
    numbers = {row["id"]: row["n"] for row in gather(place).jobs}
    changes = ", ".join(f"{name} = {at}" for name, at in instants.items())
    with closing(sqlite3.connect(place / "jobs.db")) as base, base:
        base.execute(f"UPDATE windlass_job SET {changes} WHERE n = ?", [numbers[stint.job]])


def began(stint: Stint) -> int:
    assert stint.started is not None
    return stint.started


def run_beside_another_of_its_key(place: Path) -> None:
    first, second, *_ = at_gate(place, KEY)
    change(place, second, started_at=first.over - 1)


def run_beside_all_of_the_queue(place: Path) -> None:
    """Four sequential attempts become one too many."""
    first, *others = at_gate(place, QUEUE)[:4]
    for other in others:
        change(place, other, started_at=began(first), ended_at=max(other.over, first.over))


def start_too_soon(place: Path) -> None:
    first, *others = at_gate(place, TASK)[: STARTS + 1]
    for other in others:
        change(place, other, started_at=began(first))


def stand_before_a_gate_with_room(place: Path) -> None:
    last = at_gate(place, KEY)[-1]
    change(
        place,
        last,
        queued_at=(last.let_in or 0) + LATER,
        started_at=began(last) + LATER,
        ended_at=last.over + LATER,
    )


def never_come_in(place: Path) -> None:
    """It is left at its gate, and all others are over."""
    last = at_gate(place, KEY)[-1]
    change(place, last, queued_seq=0, started_seq=0, ended_at=last.over + LATER)


def raise_unheard(place: Path) -> None:
    change(place, at_gate(place, KEY)[0], retry_count=7)


def rewrite(place: Path, edit: Callable[[dict[str, object]], None]) -> None:
    """Every line that a task wrote."""
    for path in (place / "ledger").glob("task-*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            edit(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run_before_the_claim(place: Path) -> None:
    rewrite(place, lambda line: line.update(at=1) if line["phase"] == "start" else None)


def run_after_the_end(place: Path) -> None:
    rewrite(place, lambda line: line.update(at=2**60) if line["phase"] == "end" else None)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (run_beside_another_of_its_key, rf"{KEY}=\d: 2 attempts at once; the limit is 1"),
        (run_beside_all_of_the_queue, "queue:default: [4-9] attempts at once; the limit is 3"),
        (start_too_soon, rf"{TASK}: \d+ starts within 0.4 s; the limit is {STARTS}"),
        (stand_before_a_gate_with_room, r"stood for \d\d.\d s before .*, which had room"),
        (never_come_in, r"stood for \d\d.\d s before .*, which had room"),
        (raise_unheard, "counts 7 errors; its task raise"),
        (run_before_the_claim, "before it was claimed"),
        (run_after_the_end, "after its end"),
    ],
)
def test_it_sees_what_is_wrong(place: Path, spoil: Callable[[Path], None], message: str) -> None:
    assert not re.search(message, complaints(place))
    spoil(place)
    assert re.search(message, complaints(place))


def test_a_storm_without_limits_reports_no_gates(place: Path) -> None:
    plan = json.loads((place / "plan.json").read_text())
    (place / "plan.json").write_text(json.dumps(plan | {"limits": {}}))
    assert seen(gather(place)) is None
    assert complaints(place) == ""


def test_one_that_ends_when_another_begins_is_not_beside_it() -> None:
    assert most_of([(0, 5), (5, 9), (2, 3)]) == 2
    assert most_of([(4, 4), (4, 5)]) == 1
    assert most_of([]) == 0


def test_the_time_with_capacity_is_the_complement_of_the_full_times() -> None:
    first, second, last = below([(1, 5), (3, 8), (8, 9), (7, 9)], 2)
    assert [first, second, last[0]] == [(0, 3), (5, 7), 9]
    assert common([first, second], [(2, 6)]) == [(2, 3), (5, 6)]
    assert [longest([first, second, last], within) for within in ((1, 7), (3, 5), (6, 12))] == [
        2,
        0,
        3,
    ]
