"""Pytest plugin: runs each test without a bug, and once with each planted bug it must catch.

Every run has its own process, forked from the one that collected the tests. So a bug affects only
its run, a hanging run is killed, and a run costs no more than its test. Each result is one line of
JSON in the file `--planted-runs`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from tests.planted_bugs import all_bugs
from tests.planted_bugs.bug import PlantedBug

PARALLEL_RUNS = 4  # most of the long runs only wait
PATIENCE = 5.0  # seconds a test waits if it is expected to time out, instead of its own PATIENCE
WAIT_BOUND = 2 * PATIENCE  # seconds after which such a run hangs
BOUND = 400.0  # the same for all other runs, above the need of the slowest machine
MARK = "WINDLASS_PLANTED_RUN"


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one run: `raised` and `output` belong to the failure, if any."""

    test: str
    bug: str | None
    outcome: str
    raised: str = ""
    asserted: bool = False
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    item: pytest.Item
    bug: PlantedBug | None
    pid: int
    started: float
    report: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--planted-runs", type=Path, help="file for the results of all runs")


def pytest_runtestloop(session: pytest.Session) -> bool:
    out: Path = session.config.getoption("--planted-runs")
    planted = all_bugs.PLANTED_BUGS
    wanted = [
        (item, bug)
        for item in session.items
        for bug in (None, *(each for each in planted if each.test == item.nodeid))
    ]
    wanted.sort(key=lambda run: not (run[1] and run[1].waits))  # the longest runs first
    running: list[Run] = []
    numbers = count()
    with out.open("w") as lines:
        while wanted or running:
            while wanted and len(running) < PARALLEL_RUNS:
                running.append(_start(*wanted.pop(0), out.with_suffix(f".{next(numbers)}")))
            time.sleep(0.01)
            for run in [*running]:
                result = _finished_run(run)
                if result is None:
                    continue
                running.remove(run)
                lines.write(json.dumps(asdict(result)) + "\n")
    return True


def _start(item: pytest.Item, bug: PlantedBug | None, report: Path) -> Run:
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _run(item, bug, report)
            status = 0
        finally:
            os._exit(status)
    return Run(item, bug, pid, started, report)


def _run(item: pytest.Item, bug: PlantedBug | None, report: Path) -> None:
    os.setsid()
    os.environ[MARK] = str(os.getpid())
    temp = report.with_suffix(report.suffix + ".tmp")
    temp.mkdir()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(temp)  # runs of one test must not share it
    if bug is not None and bug.times_out:
        _shorten_patience()
    if bug is not None:
        bug()
    reports = runtestprotocol(item, log=False, nextitem=None)
    failed = next((it for it in reports if it.failed), None)
    result: dict[str, Any] = {
        "outcome": "passed" if any(it.passed for it in reports) else "skipped"
    }
    if failed is not None:
        result = {"outcome": "failed", "output": failed.longreprtext[-4000:], **vars(failed)["why"]}
    report.write_text(json.dumps(result))


def _shorten_patience() -> None:
    for module in [*sys.modules.values()]:
        if not module.__name__.startswith(("tests.", "windlass.test")):
            continue
        for name in ("PATIENCE", "TIMEOUT"):
            if isinstance(vars(module).get(name), int | float):
                vars(module)[name] = PATIENCE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None:
        asserted = call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
        vars(report)["why"] = {"raised": call.excinfo.typename, "asserted": asserted}
    return report


def _finished_run(run: Run) -> RunResult | None:
    """Return the result of a finished run, after killing all processes that it started."""
    seconds = time.monotonic() - run.started
    bound = WAIT_BOUND if run.bug and run.bug.waits else BOUND
    over, status = os.waitpid(run.pid, os.WNOHANG)
    if not over and seconds < bound:
        return None
    _kill_all(run.pid)
    if not over:
        os.waitpid(run.pid, 0)
        result: dict[str, Any] = {"outcome": "hung"}
    elif run.report.exists():
        result = json.loads(run.report.read_text())
    else:
        result = {"outcome": f"died with {status}"}
    name = run.bug.name if run.bug else None
    return RunResult(run.item.nodeid, name, seconds=round(seconds, 2), **result)


def _kill_all(leader: int) -> None:
    """Kill the processes of a run: its session, and those in other sessions."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    mark = f"{MARK}={leader}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
