"""Fairness: a new job of one tenant does not wait for the backlog of another.

`make test` enqueues 5,000, `make test-all` 20,000, `WINDLASS_EFFORT=5` 100,000.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stores.fairness_app import GO, STARTS, declare

from windlass import Limit, Task, Windlass
from windlass.testing.conformance.limits.concurrency import settle_all
from windlass.testing.factories import claim_all

ROOT = Path(__file__).parents[2]
EFFORT = int(os.environ.get("WINDLASS_EFFORT", "1"))
FEW, MANY = 5_000, 20_000 * EFFORT
BULK = 1_000
SLOTS = 10
WAIT_TIMEOUT = 60.0
NEXT = 2  # the first job of a key is placed directly after the first job of the queue


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db?durability=off"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def app(url: str) -> AsyncIterator[Windlass]:
    app = Windlass(url)
    yield app
    await app.aclose()


@pytest.mark.parametrize(
    ("limited", "count"),
    [
        pytest.param(False, FEW, id="queued"),
        pytest.param(False, MANY, id="queued, many", marks=pytest.mark.slow),
        pytest.param(True, MANY, id="at a gate", marks=pytest.mark.slow),
    ],
)
async def test_one_job_does_not_wait_for_the_backlog_of_another_tenant(
    app: Windlass, url: str, tmp_path: Path, limited: bool, count: int
) -> None:
    report_start = declare(app)
    admitted = 0
    if limited:
        await app.limits.aset("queue:default", Limit(concurrency=SLOTS))
        admitted = SLOTS  # jobs of ada that were admitted already
    for _ in range(count // BULK):
        await app.aenqueue_many([report_start.new_job("ada") for _ in range(BULK)])

    assert "bob" in await claimed_after_bob(app, report_start, limit=admitted + NEXT)
    assert "bob" in await claimed_after_bob(app, report_start, limit=admitted + NEXT)
    with running_worker(url, tmp_path):
        before = await wait_for_starts(tmp_path, SLOTS)  # the tasks wait for the file GO
        job = await report_start.aenqueue("bob")
        (tmp_path / GO).touch()
        await job.await_end(WAIT_TIMEOUT)
    after = read_starts(tmp_path)[len(before) :]
    assert before == ["ada"] * SLOTS
    assert after.index("bob") < SLOTS + NEXT


async def claimed_after_bob(
    app: Windlass, report_start: Task[[str], None], limit: int
) -> list[str]:
    """Enqueue a job of bob, claim jobs one by one, and return their limit keys."""
    store = app.client().store
    await report_start.aenqueue("bob")
    keys = []
    for _ in range(limit):
        claimed = await claim_all(store, limit=1)
        await settle_all(store, claimed)
        keys += [str(row.limit_key) for row in claimed]
    assert len(keys) == limit
    return keys


@contextmanager
def running_worker(url: str, directory: Path) -> Iterator[None]:
    """Run a worker in a separate process."""
    arguments = ["worker", "tests.stores.fairness_app:app", "-Q", f"default={SLOTS}", "--grace=1s"]
    environment = os.environ | {
        "WINDLASS_URL": url,
        "WINDLASS_DATA": str(directory / "data"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", *arguments],
        cwd=directory,
        env=environment,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(WAIT_TIMEOUT)


async def wait_for_starts(directory: Path, number: int) -> list[str]:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while len(read_starts(directory)) < number:
        assert time.monotonic() < deadline, "the worker read_starts no job"
        await asyncio.sleep(0.02)
    return read_starts(directory)


def read_starts(directory: Path) -> list[str]:
    path = directory / STARTS
    return path.read_text().splitlines() if path.exists() else []
