"""A pytest plugin that runs each test as it is, and once more for each mistake it must catch.

Every run has a process of its own, forked from the one that collected the tests: so a mistake
spoils nothing but its own run, a run that hangs is killed, and a run costs what its test costs.
What became of each is written as one line of JSON into the file that `--teeth` names.
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
from tests.planted_bugs.bug import Mistake

AT_ONCE = 4  # most of the longer ones only wait
PATIENCE = 5.0  # seconds a test waits where it is expected to wait in vain, not its own patience
IN_VAIN = 2 * PATIENCE  # seconds after which such a run has hung
BOUND = 400.0  # the same for all others: above what the slowest machine needs
MARK = "WINDLASS_TEETH"


@dataclass(frozen=True, slots=True)
class Ended:
    """How one run ended: `raised` and `said` are of what failed, if anything did."""

    test: str
    mistake: str | None
    outcome: str
    raised: str = ""
    asserted: bool = False
    said: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    item: pytest.Item
    mistake: Mistake | None
    pid: int
    began: float
    report: Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--teeth", type=Path, help="where to write how each run ended")


def pytest_runtestloop(session: pytest.Session) -> bool:
    out: Path = session.config.getoption("--teeth")
    planted = all_bugs.MISTAKES
    wanted = [
        (item, mistake)
        for item in session.items
        for mistake in (None, *(it for it in planted if it.test == item.nodeid))
    ]
    wanted.sort(key=lambda run: not (run[1] and run[1].waits))  # those that take longest come first
    running: list[Run] = []
    numbers = count()
    with out.open("w") as lines:
        while wanted or running:
            while wanted and len(running) < AT_ONCE:
                running.append(_start(*wanted.pop(0), out.with_suffix(f".{next(numbers)}")))
            time.sleep(0.01)
            for run in [*running]:
                ended = _ended(run)
                if ended is None:
                    continue
                running.remove(run)
                lines.write(json.dumps(asdict(ended)) + "\n")
    return True


def _start(item: pytest.Item, mistake: Mistake | None, report: Path) -> Run:
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _run(item, mistake, report)
            status = 0
        finally:
            os._exit(status)
    return Run(item, mistake, pid, began, report)


def _run(item: pytest.Item, mistake: Mistake | None, report: Path) -> None:
    os.setsid()
    os.environ[MARK] = str(os.getpid())
    place = report.with_suffix(report.suffix + ".tmp")
    place.mkdir()
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(place)  # two runs of one test must not meet
    if mistake is not None and mistake.times_out:
        _shorten_patience()
    if mistake is not None:
        mistake()
    reports = runtestprotocol(item, log=False, nextitem=None)
    failed = next((it for it in reports if it.failed), None)
    told: dict[str, Any] = {"outcome": "passed" if any(it.passed for it in reports) else "skipped"}
    if failed is not None:
        told = {"outcome": "failed", "said": failed.longreprtext[-4000:], **vars(failed)["why"]}
    report.write_text(json.dumps(told))


def _shorten_patience() -> None:
    for module in [*sys.modules.values()]:
        if hasattr(module, "PATIENCE") and module.__name__.startswith(("tests.", "windlass.test")):
            vars(module)["PATIENCE"] = PATIENCE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None:
        asserted = call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
        vars(report)["why"] = {"raised": call.excinfo.typename, "asserted": asserted}
    return report


def _ended(run: Run) -> Ended | None:
    """How it ended, if it has; with all that it started it is gone then."""
    seconds = time.monotonic() - run.began
    bound = IN_VAIN if run.mistake and run.mistake.waits else BOUND
    over, status = os.waitpid(run.pid, os.WNOHANG)
    if not over and seconds < bound:
        return None
    _end_all(run.pid)
    if not over:
        os.waitpid(run.pid, 0)
        told: dict[str, Any] = {"outcome": "hung"}
    elif run.report.exists():
        told = json.loads(run.report.read_text())
    else:
        told = {"outcome": f"died with {status}"}
    name = run.mistake.name if run.mistake else None
    return Ended(run.item.nodeid, name, seconds=round(seconds, 2), **told)


def _end_all(leader: int) -> None:
    """Kill what is left of a run: its session, and what it started in sessions of their own."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    mark = f"{MARK}={leader}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
