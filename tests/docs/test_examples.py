"""The code of the pages and the examples runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
# A block that creates its own app is a program; other blocks are only compiled.
PROGRAMS = [
    block for block in BLOCKS if "app = Windlass(" in block or block.startswith("# example")
]
FRAGMENTS = [block for block in BLOCKS if block not in PROGRAMS]


def run(
    arguments: list[str], place: Path, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDLASS_")}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=place,
        env={**environment, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@dataclass(frozen=True)
class Demo:
    done: subprocess.CompletedProcess[str]
    left: list[str]  # files that remain in its temporary directory


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    place = tmp_path_factory.mktemp("demo")
    done = run([str(ROOT / "examples/demo.py")], place)
    return Demo(done, [path.name for path in place.iterdir()])


@pytest.mark.slow
def test_the_demo_leaves_nothing_behind(demo: Demo) -> None:
    assert demo.left == []


def test_the_demo_runs_to_its_end(demo: Demo) -> None:
    assert demo.done.returncode == 0, demo.done.stderr
    assert demo.done.stderr == ""
    reported = demo.done.stdout
    headings = ["1. A job with stages", "2. A job that fails", "3. A worker killed", "4. A job is"]
    places = [reported.index(heading) for heading in headings]
    assert places == sorted(places)
    staged, retried, killed, canceled = (
        reported[start:end] for start, end in zip(places, [*places[1:], None], strict=True)
    )
    assert re.search(r"\d+%  drawing  frame \d+ of 120", staged)
    assert "result: {'file': 'waves.film'" in staged
    assert "retrying, attempt 1, after ConnectionError" in retried
    assert "job-completed: succeeded, attempt 2" in retried
    assert "retrying, attempt 1, after crashed" in killed
    assert "['first by attempt 1', 'second by attempt 1', 'third by attempt 2']" in killed
    assert "cancel-requested: the demo is over" in canceled
    assert "job-cancelled: canceled" in canceled
    assert "its workspace is gone" in canceled
    assert "Nothing was lost." in reported


def test_the_readme_has_a_complete_program() -> None:
    assert PROGRAMS


def test_every_python_block_of_the_readme_compiles() -> None:
    for block in FRAGMENTS:
        compile(block, "README.md", "exec")


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_every_program_in_the_readme_runs(number: int, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(PROGRAMS[number])
    done = run([str(script)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if "print(" in PROGRAMS[number]:
        assert done.stdout
