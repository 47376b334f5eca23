"""The code of each how-to page is a program that runs without an error."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TIME_LIMIT = 60  # seconds for a page
# Loads Windlass once and forks for each page. A line of input names a directory with a page.py; the
# answer is its exit code. Output goes to a file in that directory.
RUNNER = f"""
import os, signal, sys, types
import apsw, fastapi, httpx, pydantic, pytest, rich, uvicorn, windlass
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        signal.alarm({TIME_LIMIT})
        os.chdir(line.strip())
        output = os.open("output", os.O_WRONLY | os.O_CREAT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv[:] = [os.path.abspath("page.py")]
        sys.path[0] = os.getcwd()
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = sys.argv[0]
        exec(compile(open("page.py").read(), sys.argv[0], "exec"), main.__dict__)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
PAGES = sorted((Path(__file__).parents[2] / "docs/how-to").glob("*.md"))
LONG = {"postgresql"}  # it starts a server of its own


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.stem in LONG)) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, runner: subprocess.Popen[str]) -> None:
    assert runner.stdin is not None
    assert runner.stdout is not None
    program = tmp_path / "page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)))
    runner.stdin.write(f"{tmp_path}\n")
    runner.stdin.flush()
    code = runner.stdout.readline()
    assert code == "0\n", (tmp_path / "output").read_text()
