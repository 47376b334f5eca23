"""`windlass workers list`: which of them still take jobs."""

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
    """A worker that has had room for an hour, and a claim answered so many seconds ago."""
    async with open_store(url) as store:
        await store.migrate()
        now = await store.ping()
        hour = 3600 * SECOND
        facts: dict[str, Any] = {
            "name": name, "host": "h", "pid": 1, "version": "1", "queues": {"default": 10},
            "tasks": ("tasks.add",), "started_at": now - hour, "seen_at": now, "free": 10,
            "free_since": now - hour, "last_claim_at": now - round(claimed * SECOND),
        }  # fmt: skip
        card = LiveWorker(**facts | over)
        put = Put(kind=WORKER, key=name, value=card.encode(), ttl=60)
        await store.put_records([put])


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_an_unresponsive_worker_is_marked_at_any_width(
    ask: Any, place: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    url = f"sqlite:///{place}/windlass.db"
    asyncio.run(show(url, "mill-1.example.org-123456-a1b2c3", claimed=0.5))
    asyncio.run(show(url, "mill-2.example.org-123456-a1b2c3", claimed=300))
    asyncio.run(show(url, "mill-3.example.org-123456-a1b2c3", claimed=300, stopping=True))
    lines = ask("workers", "list").out.splitlines()
    marks = [
        next(line for line in lines if line.startswith(name)).split()[1]
        for name in ("mill-1", "mill-2", "mill-3")
    ]
    assert marks == ["healthy", "unresponsive", "stopping"]
    found = ask("workers", "list", "--json").json
    assert [(one["unresponsive"], one["stopping"]) for one in found] == [
        (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert {one["free"] for one in found} == {10}


def test_why_reports_an_unresponsive_worker(ask: Any, put: Any, place: Path) -> None:
    job = put("add", a=1, run=False)
    asyncio.run(show(f"sqlite:///{place}/windlass.db", "mill-2", claimed=300))
    answer = ask("jobs", "why", job)
    assert "mill-2 should consume queue 'default'" in answer.out
    assert "restart it" in answer.out
