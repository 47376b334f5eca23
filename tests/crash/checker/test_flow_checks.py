"""The checker reports each single change of the evidence of a correct flow."""

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
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow

STORM = Storm(name="flow", mix=TaskMix(tasks={}, flow=True), producers=1)
JOBS = 36
_OF = "(SELECT max(n) FROM windlass_job WHERE task = 'benchmarks.chaos.flow_tasks.{}')"
MIDDLE, BOTTOM, PART, FAN = (_OF.format(task) for task in ("middle", "bottom", "part", "fan"))


@pytest.fixture(scope="module")
def correct_storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("storm") / "flow"
    storm_result = run(STORM, Plan(jobs=JOBS, seconds=60, seed=7, workers=2), directory)
    assert storm_result.violations == []
    assert storm_result.jobs == JOBS
    return directory


@pytest.fixture
def directory(correct_storm: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(correct_storm, tmp_path / "storm"))


def problems(directory: Path) -> str:
    return "\n".join(check(gather(directory)))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"UPDATE windlass_edge SET open = 1 WHERE child = {BOTTOM}", "has ended but waits for 0"),
        (
            f"UPDATE windlass_job SET waiting_for = 1 WHERE n = {BOTTOM}",
            "has ended but waits for 1",
        ),
        (
            f"UPDATE windlass_job SET first_started_at = created_at WHERE n = {BOTTOM}",
            "did not wait for",
        ),
        (f"UPDATE windlass_job SET started_at = created_at WHERE n = {FAN}", "did not wait for"),
        (f"DELETE FROM windlass_job WHERE n = {MIDDLE}", "which does not exist"),
        (f"DELETE FROM windlass_job WHERE n = {PART}", "which does not exist"),
        (f"DELETE FROM windlass_edge WHERE parent = {MIDDLE}", "that are not its parents'"),
        (f"DELETE FROM windlass_edge WHERE parent = {PART}", "29 were requested"),
        (f"DELETE FROM windlass_edge WHERE parent = {PART}", "was never enqueued"),
        (
            f"UPDATE windlass_edge SET ordinal = -1 WHERE parent = {PART}",
            "results that are not its parents'",
        ),
    ],
)
def test_a_wrong_value_in_the_tables_is_detected(
    directory: Path, statement: str, message: str
) -> None:
    with closing(sqlite3.connect(directory / "jobs.db")) as connection:
        connection.executescript(statement)
    assert re.search(message, problems(directory))


def rewrite(directory: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change every ledger line of a task."""
    for path in (directory / "ledger").glob("task-*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            change(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def begin_early(line: dict[str, object]) -> None:
    if line["phase"] == "start":
        line["at"] = 1


def lose_a_result(line: dict[str, object]) -> None:
    if isinstance(got := line.get("got"), list) and len(got) > 1:
        got.pop()


def mix_up_results(line: dict[str, object]) -> None:
    if isinstance(got := line.get("got"), list):
        got.reverse()


def make_a_part_twice(line: dict[str, object]) -> None:
    if line.get("item") == 3:
        line["item"] = 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (begin_early, "by the ledger"),
        (lose_a_result, "that are not its parents'"),
        (mix_up_results, "that are not its parents'"),
        (make_a_part_twice, "of 28 items; 29 were requested"),
    ],
)
def test_a_wrong_line_in_the_ledgers_is_detected(
    directory: Path, change: Callable[[dict[str, object]], None], message: str
) -> None:
    rewrite(directory, change)
    assert re.search(message, problems(directory))
