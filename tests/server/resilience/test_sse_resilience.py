"""SSE resilience over HTTP: the twenty-six points of the specification, in order."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.js.proxy import Proxy
from tests.server.conftest import (
    STREAM,
    LiveServer,
    enqueue,
    make_app,
    messages,
    run_server,
    wait_for,
)
from tests.server.resilience.conftest import job_at_40_percent, read, reading, run_to_end

from windlass.core.errors import StoreUnavailableError
from windlass.schemas.events import REQUIRED_KEYS
from windlass.server.config import AuthMode, ServerConfig
from windlass.stores.http import HttpConfig, HttpStore

STAGES = {
    "plan": "Initialization Queued Script Planning Brief",
    "tts": "TTS Audio Voice",
    "visuals": "Visuals Images Assets",
    "compose": "Composition Timeline Compose",
    "render": "Rendering Render Encode",
    "complete": "Complete Done",
    "processing": "Unknown",
}
BACKOFF = [1.0, 2.0, 4.0, 8.0, 16.0]
RECOVERY_RETRY = 4  # the retry at which the network is up again


def test_01_event_ids_increase(web: httpx.Client) -> None:
    _, found = run_to_end(web, "reports", percents=list(range(0, 100, 10)))
    ids = [tuple(int(part) for part in (item.id or "").split("-")) for item in found]
    assert len(ids) > 20
    for before, after in pairwise(ids):
        assert before[0] <= after[0]  # milliseconds
        assert before[1] + 1 == after[1]


def test_02_progress_never_decreases_when_events_arrive_out_of_order(
    server: LiveServer, web: httpx.Client
) -> None:
    job, found = run_to_end(web, "reports", percents=[0, 10, 25, 20, 30, 28, 50, 100])

    async def follow() -> list[Any]:
        config = HttpConfig(url=f"{server.url}/disorder", sleep=at_once)
        async with HttpStore(config) as store:
            return [event async for event in store.tail(UUID(job["id"]))]

    result = asyncio.run(follow())
    assert [event.seq for event in result] == [item.seq for item in found]
    shown = [event.data["progressPct"] for event in result if "progressPct" in event.data]
    assert shown == sorted(shown)
    assert shown[-1] == 100


def test_03_a_client_with_the_last_event_id_gets_the_following_events(
    web: httpx.Client, tmp_path: Path
) -> None:
    """By the header and by the URL, after each event of the log."""
    job = job_at_40_percent(web, tmp_path)
    (tmp_path / "gate").touch()
    log = read(web, job)
    for index, event in enumerate(log[:-1]):
        assert read(web, job, event.id) == log[index + 1 :]
        address = f"/api/jobs/{job}/events?lastEventId={event.id}"
        with reading(web, address) as stream:
            assert next(stream) == log[index + 1]


def test_04_a_stream_without_events_sends_keepalive_comments(tmp_path: Path) -> None:
    assert ServerConfig().keepalive == 10
    config = ServerConfig(auth=AuthMode.LOCAL, keepalive=0.1)
    with run_server(tmp_path, config, app=make_app(tmp_path)) as server, server.client() as web:
        url = f"/api/jobs/{enqueue(web, 'add', a=1)['id']}/events"
        with web.stream("GET", url, headers=STREAM) as response:
            comments = (message for message in messages(response) if isinstance(message, str))
            keepalives = [next(comments) for _ in range(3)]
    timestamps = [keepalive.removeprefix("keepalive: ") for keepalive in keepalives]
    assert all(time.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ") for timestamp in timestamps)
    assert timestamps == sorted(set(timestamps))


@pytest.mark.parametrize(
    ("number", "stage", "phase"),
    [
        (f"{number:02}", stage, phase)
        for number, (stage, phase) in enumerate(
            ((stage, phase) for phase, stages in STAGES.items() for stage in stages.split()), 5
        )
    ],
)
def test_05_to_24_an_event_has_the_phase_of_its_stage(
    web: httpx.Client, number: str, stage: str, phase: str
) -> None:
    assert number <= "24"
    _, found = run_to_end(web, "stage", name=stage)
    [result] = [item.data for item in found if item.type == "step-progress"]
    assert (result["stage"], result["phase"]) == (stage, phase)


def test_25_each_event_type_has_its_name_and_its_data(web: httpx.Client) -> None:
    found = (
        run_to_end(web, "eventful", end="done")[1] + run_to_end(web, "eventful", end="failed")[1]
    )
    job = enqueue(web, "eventful", end="canceled")["id"]
    wait_for(web, job, "running")
    web.post(f"/api/jobs/{job}/cancel")
    found += read(web, job)
    keys: dict[str, set[str]] = {}
    for item in found:
        assert item.data["correlationId"]
        keys[item.type] = keys.get(item.type, set(item.data)) & set(item.data)
    params = {
        "job-status", "step-status", "step-progress", "warning", "error",
        "job-completed", "job-failed", "job-cancelled",
    }  # fmt: skip
    assert params <= set(keys)
    for kind in params:
        assert set(REQUIRED_KEYS[kind]) <= keys[kind]  # type: ignore[index]


async def at_once(_: float) -> None:
    """A sleep that returns at once."""


def test_26_a_broken_connection_is_retried_after_1_2_4_8_and_16_seconds(
    web: httpx.Client, proxy: Proxy, tmp_path: Path
) -> None:
    """A client that reconnects misses nothing; it gives up after five attempts."""
    slept: list[float] = []

    async def pause(seconds: float) -> None:
        slept.append(seconds)
        proxy.open = len(slept) == RECOVERY_RETRY

    async def follow(job: str) -> list[int]:
        seen = []
        async with HttpStore(HttpConfig(url=proxy.url, sleep=pause, connect_retries=())) as store:
            async for event in store.tail(UUID(job)):
                seen.append(event.seq)
                if event.data.get("progressPct") == 40:
                    proxy.open = False
                    proxy.cut()
                    (tmp_path / "gate").touch()
        return seen

    job = job_at_40_percent(web, tmp_path)
    seen = asyncio.run(follow(job))
    assert seen == [item.seq for item in read(web, job)]
    assert slept == BACKOFF[:RECOVERY_RETRY]
    proxy.open = False
    slept[:] = [0.0] * RECOVERY_RETRY
    with pytest.raises(StoreUnavailableError):
        asyncio.run(follow(job))
    assert slept[RECOVERY_RETRY:] == BACKOFF
