"""`windlass workers list`: healthy and unresponsive workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from windlass.core.clock import SECOND
from windlass.core.versioned_record import Put
from windlass.core.worker_presence import WORKER, LiveWorker
from windlass.stores import open_store


async def show(url: str, name: str, *, claimed: float, **over: Any) -> None:
    """Publish a worker with free slots for an hour, whose last claim was `claimed` seconds ago."""
    async with open_store(url) as store:
        await store.migrate()
        now = await store.ping()
        hour = 3600 * SECOND
        facts: dict[str, Any] = {
            "name": name, "host": "h", "pid": 1, "version": "1", "queues": {"default": 10},
            "tasks": ("tasks.add",), "started_at": now - hour, "seen_at": now, "free": 10,
            "free_since": now - hour, "last_claim_at": now - round(claimed * SECOND),
        }  # fmt: skip
        record = LiveWorker(**facts | over)
        request = Put(kind=WORKER, key=name, value=record.encode(), ttl=60)
        await store.put_records([request])


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_an_unresponsive_worker_is_marked_at_any_width(
    run_cli: Any, project_dir: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    url = f"sqlite:///{project_dir}/windlass.db"
    asyncio.run(show(url, "mill-1.example.org-123456-a1b2c3", claimed=0.5))
    asyncio.run(show(url, "mill-2.example.org-123456-a1b2c3", claimed=300))
    asyncio.run(show(url, "mill-3.example.org-123456-a1b2c3", claimed=300, stopping=True))
    lines = run_cli("workers", "list").out.splitlines()
    marks = [
        next(line for line in lines if line.startswith(name)).split()[1]
        for name in ("mill-1", "mill-2", "mill-3")
    ]
    assert marks == ["healthy", "unresponsive", "stopping"]
    found = run_cli("workers", "list", "--json").json["workers"]
    assert [(one["unresponsive"], one["stopping"]) for one in found] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert {one["free"] for one in found} == {10}


def test_why_reports_an_unresponsive_worker(
    run_cli: Any, enqueue_job: Any, project_dir: Path
) -> None:
    job = enqueue_job("add", a=1, run=False)
    asyncio.run(show(f"sqlite:///{project_dir}/windlass.db", "mill-2", claimed=300))
    answer = run_cli("jobs", "why", job)
    assert "mill-2 should consume queue 'default'" in answer.out
    assert "restart it" in answer.out
