"""Children and grandchildren of a killed worker end with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.process.process_table import alive, kill, wait_until_gone

ROOT = Path(__file__).parents[2]


@contextmanager
def fake_worker(
    command: str, directory: Path
) -> Iterator[tuple[subprocess.Popen[str], int, int, int]]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.process.fake_worker", command, str(directory / "mark")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert worker.stdout is not None
    child, grandchild, warden = json.loads(worker.stdout.readline())
    try:
        assert all(alive(pid) for pid in (child, grandchild, warden))
        yield worker, child, grandchild, warden
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if alive(warden):
            kill(warden)


def test_a_killed_worker_leaves_no_process_behind(tmp_path: Path) -> None:
    """Also if a terminal or a service manager has signaled the warden."""
    with fake_worker("sleep", tmp_path) as (worker, child, grandchild, warden):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(warden, number)
        worker.kill()
        wait_until_gone(child, grandchild, warden)


def test_a_child_dies_with_its_parent_even_without_a_warden(tmp_path: Path) -> None:
    """Blocked in a C call, the child cannot end itself; the kernel kills it."""
    with fake_worker("hold", tmp_path) as (worker, child, _, warden):
        kill(warden)
        wait_until_gone(warden)
        worker.kill()
        wait_until_gone(child)


def test_a_worker_that_exits_normally_leaves_no_process_behind(tmp_path: Path) -> None:
    with fake_worker("sleep", tmp_path) as (worker, *pids):
        worker.send_signal(signal.SIGINT)
        worker.wait(timeout=30)
        wait_until_gone(*pids)
