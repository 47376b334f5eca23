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
from benchmarks.chaos.checks.intervals import below, intersection, longest_overlap, max_overlap
from benchmarks.chaos.checks.limit_checks import LimitedAttempt, limited_attempts, observed_limits
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow

KEY, TASK, QUEUE = "key:benchmarks.chaos.tasks.keyed", "task:benchmarks.chaos.tasks.rated", "queue"
STARTS, PERIOD = 6, 0.4
LIMITS: dict[str, dict[str, float]] = {
    "queue:default": {"concurrency": 3},
    TASK: {"starts": STARTS, "period": PERIOD},
    KEY: {"concurrency": 1},
}
STORM = Storm(
    name="limit",
    mix=TaskMix(tasks={"work": 1, "rated": 2, "keyed": 3}, cancels=0.1, limits=LIMITS),
    producers=1,
)
LATER = 60_000_000


@pytest.fixture(scope="module")
def correct_storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("storm") / "limit"
    storm_result = run(STORM, Plan(jobs=60, seconds=60, seed=7, workers=2), directory)
    assert storm_result.violations == []
    assert storm_result.gates is not None
    assert storm_result.gates.most.keys() == LIMITS.keys()
    assert storm_result.gates.waited > 0
    return directory


@pytest.fixture
def directory(correct_storm: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(correct_storm, tmp_path / "storm"))


def problems(directory: Path) -> str:
    return "\n".join(check(gather(directory)))


def at_gate(directory: Path, limit: str) -> list[LimitedAttempt]:
    """The attempts that ended their jobs, and started, at the gate where most did."""
    found: dict[str, list[LimitedAttempt]] = {}
    for limited in limited_attempts(gather(directory)):
        for gate in limited.gates:
            if gate.startswith(limit) and limited.started and limited.outcome == "succeed":
                found.setdefault(gate, []).append(limited)
    most: list[LimitedAttempt] = max(found.values(), key=len)
    return sorted(most, key=began)


def change(directory: Path, limited: LimitedAttempt, **instants: int) -> None:
    numbers = {row["id"]: row["n"] for row in gather(directory).jobs}
    changes = ", ".join(f"{name} = {at}" for name, at in instants.items())
    with closing(sqlite3.connect(directory / "jobs.db")) as connection, connection:
        connection.execute(f"UPDATE windlass_job SET {changes} WHERE n = ?", [numbers[limited.job]])


def began(limited: LimitedAttempt) -> int:
    assert limited.started is not None
    return limited.started


def run_beside_another_of_its_key(directory: Path) -> None:
    first, second, *_ = at_gate(directory, KEY)
    change(directory, second, started_at=first.ended - 1)


def run_beside_all_of_the_queue(directory: Path) -> None:
    """Four sequential attempts become one too many."""
    first, *others = at_gate(directory, QUEUE)[:4]
    for other in others:
        change(directory, other, started_at=began(first), ended_at=max(other.ended, first.ended))


def start_too_soon(directory: Path) -> None:
    first, *others = at_gate(directory, TASK)[: STARTS + 1]
    for other in others:
        change(directory, other, started_at=began(first))


def wait_at_an_open_gate(directory: Path) -> None:
    last = at_gate(directory, KEY)[-1]
    change(
        directory,
        last,
        queued_at=(last.queued or 0) + LATER,
        started_at=began(last) + LATER,
        ended_at=last.ended + LATER,
    )


def stay_at_a_gate(directory: Path) -> None:
    """The job stays at its gate after all others have ended."""
    last = at_gate(directory, KEY)[-1]
    change(directory, last, queued_seq=0, started_seq=0, ended_at=last.ended + LATER)


def count_errors_that_were_not_raised(directory: Path) -> None:
    change(directory, at_gate(directory, KEY)[0], retry_count=7)


def rewrite(directory: Path, edit: Callable[[dict[str, object]], None]) -> None:
    """Change every ledger line of a task."""
    for path in (directory / "ledger").glob("task-*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            edit(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run_before_the_claim(directory: Path) -> None:
    rewrite(directory, lambda line: line.update(at=1) if line["phase"] == "start" else None)


def run_after_the_end(directory: Path) -> None:
    rewrite(directory, lambda line: line.update(at=2**60) if line["phase"] == "end" else None)


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (run_beside_another_of_its_key, rf"{KEY}=\d: 2 attempts at once; the limit is 1"),
        (run_beside_all_of_the_queue, "queue:default: [4-9] attempts at once; the limit is 3"),
        (start_too_soon, rf"{TASK}: \d+ starts within 0.4 s; the limit is {STARTS}"),
        (wait_at_an_open_gate, r"waited \d\d.\d s at .* with free capacity"),
        (stay_at_a_gate, r"waited \d\d.\d s at .* with free capacity"),
        (count_errors_that_were_not_raised, "counts 7 errors; its task raise"),
        (run_before_the_claim, "before it was claimed"),
        (run_after_the_end, "after its end"),
    ],
)
def test_a_violation_is_detected(
    directory: Path, corrupt: Callable[[Path], None], message: str
) -> None:
    assert not re.search(message, problems(directory))
    corrupt(directory)
    assert re.search(message, problems(directory))


def test_a_storm_without_limits_reports_no_gates(directory: Path) -> None:
    plan = json.loads((directory / "plan.json").read_text())
    (directory / "plan.json").write_text(json.dumps(plan | {"limits": {}}))
    assert observed_limits(gather(directory)) is None
    assert problems(directory) == ""


def test_spans_that_only_touch_do_not_overlap() -> None:
    assert max_overlap([(0, 5), (5, 9), (2, 3)]) == 2
    assert max_overlap([(4, 4), (4, 5)]) == 1
    assert max_overlap([]) == 0


def test_the_time_with_capacity_is_the_complement_of_the_full_times() -> None:
    first, second, last = below([(1, 5), (3, 8), (8, 9), (7, 9)], 2)
    assert [first, second, last[0]] == [(0, 3), (5, 7), 9]
    assert intersection([first, second], [(2, 6)]) == [(2, 3), (5, 6)]
    assert [
        longest_overlap([first, second, last], within) for within in ((1, 7), (3, 5), (6, 12))
    ] == [
        2,
        0,
        3,
    ]
