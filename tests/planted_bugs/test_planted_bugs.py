"""Each planted bug is caught by an assertion of its named test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.planted_bugs.all_bugs import PLANTED_BUGS
from tests.planted_bugs.bug import PlantedBug
from tests.planted_bugs.plugin import RunResult
from tests.stores.postgres.server import shared_server
from tests.testing.broken_stores import BROKEN

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/planted-bugs.md"
TESTS = sorted({bug.test for bug in PLANTED_BUGS})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunResult]:
    """Results of all named tests, without a bug and with each of their planted bugs."""
    directory = tmp_path_factory.mktemp("planted")
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "tests.planted_bugs.plugin"),
        *(
            "-p",
            "no:cacheprovider",
            "-o",
            "timeout=0",
            f"--planted-runs={directory / 'runs'}",
            *TESTS,
        ),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"WINDLASS_TEST_POSTGRES_URL": shared_server()},
        capture_output=True, text=True, timeout=840, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (directory / "runs").read_text().splitlines()
    return [RunResult(**json.loads(line)) for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("test", TESTS)
def test_it_passes_without_a_bug(runs: list[RunResult], test: str) -> None:
    [run] = [run for run in runs if run.test == test and run.bug is None]
    assert run.outcome == "passed", run.output


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_it_catches(runs: list[RunResult], bug: PlantedBug) -> None:
    [run] = [run for run in runs if run.bug == bug.name]
    if bug.waits:
        caught = run.outcome == "hung" or run.raised == "TimeoutError"
    elif bug.raises is AssertionError:
        caught = run.asserted
    else:
        caught = run.raised == bug.raises.__name__
    assert caught, f"{run.outcome} in {run.seconds} s: {run.raised}\n{run.output}"


def shown(test: str) -> str:
    """Return a test's name as the page shows it."""
    path, *names = test.partition("[")[0].split("::")
    return f"`{'.'.join(names)}`" if len(names) > 1 else f"`{path}`: `{names[0]}`"


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_the_page_lists_it(bug: PlantedBug) -> None:
    rows = [row.strip("| ").split(" | ") for row in PAGE.read_text().splitlines() if "|" in row]
    [(_, shipped_by, caught)] = [row for row in rows if row[0] == bug.sentence]
    assert "https://" in shipped_by or shipped_by.startswith("no report found")
    assert caught == shown(bug.test)


def test_the_page_has_the_right_count() -> None:
    listed = [
        row for row in PAGE.read_text().splitlines() if "](https://" in row or "no report" in row
    ]
    assert f"Here are {len(listed)} planted bugs" in PAGE.read_text()
    assert len(listed) == len(PLANTED_BUGS) + len(BROKEN)
