"""Every test run starts from the same process state, and prints what to do about failures."""

from __future__ import annotations

import gc
import os
import re
import shlex
import shutil
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import hypothesis
import pytest
import typer.testing
from tests import environment

# The commands of an app do not change, so they are created once and not for each call.
vars(typer.testing)["_get_command"] = cache(typer.main.get_command)
environment.normalize()  # at import: collection already starts processes
# The same examples in every run, new ones in `make chaos`. No deadline: load must fail no test.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize="WINDLASS_EFFORT" not in os.environ,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")

HERE = Path(__file__).parent
QUICK = "not slow"  # the mark expression of `make test`
SLOW_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)

# Longest first, so that no process runs a long file alone at the end.
LONGEST = (
    "planted_bugs/test_planted_bugs.py",
    "stores/postgres/test_model.py",
    "stores/sqlite/test_processes.py",
    "server/test_openapi.py",
    "server/remote/test_remote_workers.py",
    "crash/test_postgres_storms.py",
    "stores/postgres/outages/test_live_event_gaps.py",
    "crash/test_storms.py",
    "stores/sqlite/test_power_cut.py",
    "stores/test_model.py",
    "benchmarks/test_command.py",
    "docs/test_tutorial.py",
    "browser/test_job_page.py",
    "browser/test_other_pages.py",
    "browser/test_jobs_page.py",
    "browser/test_user_races.py",
    "browser/test_shared_stream.py",
    "cli/commands/test_worker.py",
    "worker/loops/test_ticker_simulation.py",
    "crash/test_disk_storms.py",
    "benchmarks/test_server.py",
    "stores/postgres/test_simulated_month.py",
    "stores/test_fairness.py",
    "stores/http/test_conformance.py",
    "stores/postgres/outages/test_unreliable_store.py",
    "stores/test_sqlite.py",
    "stores/test_postgres.py",
)
_POSITION = {str(HERE / name): place for place, name in enumerate(LONGEST)}
RERUN_LIMIT = 5


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of files that are entirely slow, because each process collects all files."""
    if collection_path.suffix != ".py" or not _runs_all_quick_tests(config):
        return None
    return True if SLOW_FILE.search(collection_path.read_text()) else None


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Skip classes outside `SAMPLE` for the same reason."""
    sample = getattr(collector.obj, "SAMPLE", None)
    if sample is None or not name.startswith("Test") or not _runs_all_quick_tests(collector.config):
        return None
    return None if obj in sample else []


def _runs_all_quick_tests(config: pytest.Config) -> bool:
    """Whether this is a plain `make test`."""
    everything = all(Path(argument).resolve() == HERE for argument in config.args)
    return bool(everything and config.option.markexpr == QUICK and not config.option.keyword)


@pytest.hookimpl(tryfirst=True)  # before the markers choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_outside_sample(item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _POSITION.get(str(item.path), len(_POSITION)))


def _is_outside_sample(item: pytest.Item) -> bool:
    """A file that runs the conformance suite on a wrapper runs `SAMPLE` of it in `make test`."""
    if not isinstance(item, pytest.Function) or item.cls is None:
        return False
    sample: tuple[type, ...] | None = getattr(item.module, "SAMPLE", None)
    return sample is not None and item.cls not in sample


def pytest_collection_finish() -> None:
    gc.freeze()  # collected items stay: the garbage collector need not visit thousands of them


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats
    failed = [report.nodeid for kind in ("failed", "error") for report in reports.get(kind, [])]
    if failed:
        terminalreporter.section("what to do")
        terminalreporter.line("Run a failed test alone, with its output:")
        for name in failed[:RERUN_LIMIT]:
            test = shlex.quote(name)
            terminalreporter.line(f"  make test-all ARGS={shlex.quote(f'-n0 -s {test}')}")
        if shutil.disk_usage(gettempdir()).free < 2**30:
            terminalreporter.line(
                f"{gettempdir()}, where tests keep files, has less than 1 GiB free."
            )
        terminalreporter.line("If it passes alone, it depends on load: that is a bug of the test.")
    elif terminalreporter.config.option.markexpr == QUICK and not _ran(reports):
        terminalreporter.line("No quick test matches. make test-all runs the slow ones, too.")


def _ran(reports: dict[str, list[Any]]) -> bool:
    return any(reports.get(kind) for kind in ("passed", "skipped"))
