"""When a process is killed, all its descendants end, too."""

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
def driving(command: str, place: Path) -> Iterator[tuple[subprocess.Popen[str], int, int, int]]:
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.process.fake_worker", command, str(place / "mark")],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert driver.stdout is not None
    child, grandchild, warden = json.loads(driver.stdout.readline())
    try:
        assert all(alive(pid) for pid in (child, grandchild, warden))
        yield driver, child, grandchild, warden
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if alive(warden):
            kill(warden)


def test_a_killed_worker_leaves_no_process_behind(tmp_path: Path) -> None:
    """Even after the signals that a terminal or a service manager sends to all."""
    with driving("sleep", tmp_path) as (driver, child, grandchild, warden):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(warden, number)
        driver.kill()
        wait_until_gone(child, grandchild, warden)


def test_a_child_dies_with_its_parent_even_without_a_warden(tmp_path: Path) -> None:
    """Blocked in a C call, the child cannot end itself; the kernel kills it."""
    with driving("hold", tmp_path) as (driver, child, _, warden):
        kill(warden)
        wait_until_gone(warden)
        driver.kill()
        wait_until_gone(child)


def test_a_worker_that_exits_normally_leaves_no_process_behind(tmp_path: Path) -> None:
    with driving("sleep", tmp_path) as (driver, *others):
        driver.send_signal(signal.SIGINT)
        driver.wait(timeout=30)
        wait_until_gone(*others)
