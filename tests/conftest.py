"""Every test run starts from the same process state and tells what to do about failures."""

from __future__ import annotations

import gc
import shlex
import shutil
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from tests import environment

# The commands of an app do not change: they are made once, not for each call of a test.
vars(typer.testing)["_get_command"] = cache(typer.main.get_command)
environment.normalize()  # at import: collection already starts processes

# Longest first: no process is left alone with a long file at the end.
LONGEST = (
    "teeth/test_teeth.py",
    "stores/postgres/test_model.py",
    "stores/sqlite/test_processes.py",
    "server/test_schema.py",
    "server/test_remote_workers.py",
    "crash/test_postgres.py",
    "stores/postgres/test_gapless.py",
    "crash/test_storms.py",
    "stores/sqlite/test_power_cut.py",
    "stores/test_model.py",
    "bench/test_cli.py",
    "test_tutorial.py",
    "browser/test_job.py",
    "browser/test_pages.py",
    "browser/test_jobs.py",
    "browser/test_hurry.py",
    "browser/test_one_stream.py",
    "cli/test_worker.py",
    "worker/test_month.py",
    "crash/test_disk.py",
    "bench/test_serving.py",
    "stores/postgres/test_month.py",
    "stores/test_fairness.py",
    "stores/test_http.py",
    "stores/postgres/test_faulty.py",
    "stores/test_sqlite.py",
    "stores/test_postgres.py",
)
_POSITION = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
RERUN_LIMIT = 5


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files that `make test` leaves out as a whole: every process collects all."""
    named = any(".py" in argument for argument in config.args)
    if named or not _is_quick(config) or collection_path.suffix != ".py":
        return None
    return True if "\npytestmark = pytest.mark.slow" in collection_path.read_text() else None


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """A file that runs the conformance suite on a wrapper runs `SAMPLE` of it in `make test`."""
    sample = getattr(collector.obj, "SAMPLE", None)
    if sample is None or not name.startswith("Test") or not _is_quick(collector.config):
        return None
    return None if obj in sample else []


def _is_quick(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _POSITION.get(str(item.path), len(_POSITION)))


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of collected items: the collector need not look at them again and again


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats
    failed = [report.nodeid for kind in ("failed", "error") for report in reports.get(kind, [])]
    if failed:
        terminalreporter.section("what to do")
        terminalreporter.line("Run a failed test alone, with its output:")
        for name in failed[:RERUN_LIMIT]:
            test = shlex.quote(name)
            terminalreporter.line(f"  make test-all ARGS={shlex.quote(f'-n0 -s {test}')}")
        if shutil.disk_usage("/tmp").free < 2**30:
            terminalreporter.line("Less than 1 GiB is free in /tmp, where tests keep their files.")
        terminalreporter.line("If it passes alone, it depends on load: that is a bug of the test.")
    elif reports.get("deselected") and not reports.get("passed"):
        terminalreporter.line("Only slow tests match: use make test-all instead of make test.")
