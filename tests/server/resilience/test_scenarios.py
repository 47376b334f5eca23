"""The three manual scenarios of the specification, automated."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.js.proxy import Proxy
from tests.server.conftest import LiveServer, SseMessage, exists, wait_for
from tests.server.resilience.conftest import (
    job_at_40_percent,
    job_directories,
    percents,
    read,
    reading,
    run_to_end,
)

from windlass.stores.http import HttpConfig, HttpStore


def test_a_disconnected_client_resumes_without_loss_or_repetition(
    web: httpx.Client, proxy: Proxy, tmp_path: Path
) -> None:
    """The network fails during a long job; the job continues; the network recovers."""
    job = job_at_40_percent(web, tmp_path)
    url = f"{proxy.url}/api/jobs/{job}/events"
    seen: list[SseMessage] = []

    def follow() -> None:
        with reading(web, url) as stream:
            for new in stream:
                seen.append(new)
                if percents(seen)[-1:] == [40]:
                    proxy.open = False
                    proxy.cut()

    with pytest.raises(httpx.TransportError):
        follow()
    (tmp_path / "gate").touch()
    wait_for(web, job, "succeeded")  # while the network is down
    with pytest.raises(httpx.TransportError):
        web.get(url)
    assert (seen[-1].type, percents(seen)[-1]) == ("step-progress", 40)
    proxy.open = True
    with reading(web, url, seen[-1].id) as stream:
        after = list(stream)
    assert [item.seq for item in seen + after] == list(range(1, after[-1].seq + 1))
    assert seen + after == read(web, job)
    assert percents(after)[0] >= 40
    assert percents(after)[-1] == 100


def test_a_job_canceled_at_40_percent_leaves_no_files(
    server: LiveServer, web: httpx.Client, tmp_path: Path
) -> None:
    job = job_at_40_percent(web, tmp_path)
    assert all(exists(place) for place in job_directories(server, job))
    response = web.post(f"/api/jobs/{job}/cancel", json={"reason": "enough"}).json()
    assert (response["status"], response["cleanupScheduled"]) == ("requested", True)
    found = read(web, job)
    # The files are removed before the final event.
    assert not any(exists(place) for place in job_directories(server, job))
    result = web.get(f"/api/jobs/{job}").json()
    assert (result["state"], result["percent"]) == ("canceled", 40)
    assert result["endedAt"] == result["canceledAt"] is not None
    assert [item.type for item in found[-2:]] == ["cancel-requested", "job-cancelled"]
    assert found[-1].data["message"] == "enough"


def test_progress_never_decreases_when_events_arrive_out_of_order(
    server: LiveServer, web: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Early and repeated events are logged and rejected; no event is missing at the end."""
    job, found = run_to_end(web, "reports", percents=[10, 30, 20, 40, 90])

    async def at_once(_: float) -> None: ...

    async def follow() -> list[dict[str, Any]]:
        config = HttpConfig(url=f"{server.url}/disorder", sleep=at_once)
        async with HttpStore(config) as store:
            return [dict(event.data) async for event in store.tail(UUID(job["id"]))]

    with caplog.at_level(logging.INFO, "windlass.stores"):
        result = asyncio.run(follow())
    shown = [item["progressPct"] for item in result if "progressPct" in item]
    assert shown == [10, 30, 30, 40, 90]
    assert len(result) == len(found)
    assert (result[-1]["status"], job["percent"]) == ("succeeded", 100)
    assert "duplicate event" in caplog.text
    assert "gap in the events" in caplog.text
