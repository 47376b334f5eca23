"""Each planted mistake is caught by the test that is named beside it, and by what it asserts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.planted_bugs.all_bugs import MISTAKES
from tests.planted_bugs.bug import Mistake
from tests.planted_bugs.plugin import Ended
from tests.stores.postgres.server import shared_server
from tests.testing.broken_stores import BROKEN

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/planted-bugs.md"
TESTS = sorted({mistake.test for mistake in MISTAKES})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """Every test that is named, as it is and with each of its mistakes, in one go."""
    place = tmp_path_factory.mktemp("teeth")
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "tests.planted_bugs.plugin"),
        *("-p", "no:cacheprovider", "-o", "timeout=0", f"--teeth={place / 'runs'}", *TESTS),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"WINDLASS_TEST_POSTGRES_URL": shared_server()},
        capture_output=True, text=True, timeout=840, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (place / "runs").read_text().splitlines()
    return [Ended(**json.loads(line)) for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("test", TESTS)
def test_without_a_mistake_it_passes(runs: list[Ended], test: str) -> None:
    [run] = [run for run in runs if run.test == test and run.mistake is None]
    assert run.outcome == "passed", run.said


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_it_catches(runs: list[Ended], mistake: Mistake) -> None:
    [run] = [run for run in runs if run.mistake == mistake.name]
    if mistake.waits:
        caught = run.outcome == "hung" or run.raised == "TimeoutError"
    elif mistake.raises is AssertionError:
        caught = run.asserted
    else:
        caught = run.raised == mistake.raises.__name__
    assert caught, f"{run.outcome} in {run.seconds} s: {run.raised}\n{run.said}"


def shown(test: str) -> str:
    """A test's name as the pages give it."""
    path, *names = test.partition("[")[0].split("::")
    return f"`{'.'.join(names)}`" if len(names) > 1 else f"`{path}`: `{names[0]}`"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_page_tells_of_it(mistake: Mistake) -> None:
    rows = [row.strip("| ").split(" | ") for row in PAGE.read_text().splitlines() if "|" in row]
    [(_, shipped_by, caught)] = [row for row in rows if row[0] == mistake.sentence]
    assert "https://" in shipped_by or shipped_by.startswith("no report found")
    assert caught == shown(mistake.test)


def test_the_page_counts_right() -> None:
    told = [
        row for row in PAGE.read_text().splitlines() if "](https://" in row or "no report" in row
    ]
    assert f"Here are {len(told)} mistakes" in PAGE.read_text()
    assert len(told) == len(MISTAKES) + len(BROKEN)
