"""Quotas of open streams: of one key with its sessions and tickets, and of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
from tests.server.conftest import STREAM, LiveServer, enqueue, run_server, until

from windlass.core.errors import StoreUnavailableError
from windlass.core.job.lease import Claim
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.stores.http import HttpConfig, HttpStore

SMALL_QUOTAS = ServerConfig(auth=AuthMode.KEYS, max_streams_per_key=3, max_streams=5)


@pytest.fixture(scope="module")
def quota_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with run_server(tmp_path_factory.mktemp("narrow"), SMALL_QUOTAS) as live_server:
        yield live_server


def open_stream(stack: ExitStack, web: httpx.Client, path: str, **params: str) -> httpx.Response:
    """Open a stream until the stack closes; return its response, or the rejection."""
    response = stack.enter_context(web.stream("GET", path, params=params, headers=STREAM))
    if response.status_code != 200:
        response.read()
    return response


def rejected(answer: httpx.Response) -> bool:
    if answer.status_code == 200:
        return False
    assert answer.status_code == 429
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["code"] == "too_many_streams"
    assert "/api/events" in answer.json()["advice"]
    return True


def test_the_quota_of_a_key_includes_its_sessions_and_tickets(quota_server: LiveServer) -> None:
    key = quota_server.key(Role.PRODUCER)
    with (
        quota_server.client(key) as web,
        quota_server.client(quota_server.key(Role.PRODUCER)) as other,
    ):
        job = enqueue(web, "add", {"hold": True}, a=1)["id"]
        log = f"/api/jobs/{job}/events"
        with quota_server.client() as browser, quota_server.client() as page, ExitStack() as stack:
            assert browser.post("/api/session", json={"key": key}).status_code == 201
            browser.headers["Sec-Fetch-Site"] = "same-origin"
            ticket, another = (web.post("/api/tickets").json()["ticket"] for _ in range(2))

            assert not rejected(open_stream(stack, browser, log))
            assert not rejected(open_stream(stack, page, log, ticket=ticket))
            assert not rejected(open_stream(stack, web, "/api/events", after=f"{job}:0"))
            until(lambda: quota_server.context.hub.open_streams == 3, "three streams are open")
            for client, path, more in (
                (web, log, {}),
                (web, "/api/events", {}),
                (browser, log, {}),
                (page, log, {"ticket": another}),
            ):
                response = open_stream(stack, client, path, **more)
                assert rejected(response)
                assert "3 open streams" in response.json()["detail"]
            assert web.get(log).status_code == 200, "pages do not count as streams"
            assert not rejected(open_stream(stack, other, "/api/events")), (
                "another key has its own quota"
            )
        until(lambda: quota_server.context.hub.open_streams == 0, "all streams are closed")
        with ExitStack() as stack:
            assert [rejected(open_stream(stack, web, log)) for _ in range(4)] == [
                *[False] * 3,
                True,
            ]
        until(lambda: quota_server.context.hub.open_streams == 0, "all streams are closed")


def test_the_quota_of_the_server_limits_all_keys_together(quota_server: LiveServer) -> None:
    with ExitStack() as stack:
        found = []
        for _ in range(3):
            web = stack.enter_context(quota_server.client(quota_server.key(Role.VIEWER)))
            found += [open_stream(stack, web, "/api/events") for _ in range(2)]
        assert [rejected(item) for item in found] == [*[False] * 5, True]
        assert "this server reached the limit of 5 open streams" in found[-1].json()["detail"]
    until(lambda: quota_server.context.hub.open_streams == 0, "all streams are closed")


def test_concurrent_streams_do_not_exceed_the_quota(quota_server: LiveServer) -> None:
    with quota_server.client(quota_server.key(Role.VIEWER)) as web, ExitStack() as stack:
        with ThreadPoolExecutor(12) as pool:
            requests = [pool.submit(open_stream, stack, web, "/api/events") for _ in range(12)]
        responses = [item.result() for item in requests]
        assert sum(not rejected(response) for response in responses) == 3
    until(lambda: quota_server.context.hub.open_streams == 0, "all streams are closed")


def test_requests_without_a_key_have_only_the_server_quota(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.LOCAL, max_streams_per_key=1, max_streams=2)
    with run_server(tmp_path, config) as server, server.client() as web, ExitStack() as stack:
        found = [rejected(open_stream(stack, web, "/api/events")) for _ in range(3)]
        assert found == [False, False, True]


def test_a_remote_store_retries_while_the_quota_is_used_up(quota_server: LiveServer) -> None:
    """It gives up after its retries, with the error of the server."""
    key = quota_server.key(Role.PRODUCER)

    async def follow(job: str, sleeps: list[float], stack: ExitStack) -> int:
        async def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            if len(sleeps) == 2:
                await asyncio.to_thread(stack.close)
                await asyncio.to_thread(
                    until, lambda: quota_server.context.hub.open_streams == 0, "there is room"
                )

        async with HttpStore(HttpConfig(url=quota_server.url, key=key, sleep=sleep)) as store:
            async for event in store.tail(UUID(job)):
                return event.seq
        raise AssertionError("no event arrived")

    with quota_server.client(key) as web:
        job = enqueue(web, "add", {"hold": True}, a=1)["id"]
        with ExitStack() as stack:
            for _ in range(3):
                open_stream(stack, web, f"/api/jobs/{job}/events")
            sleeps: list[float] = []
            assert asyncio.run(follow(job, sleeps, stack)) == 1
            assert sleeps == [1.0, 2.0]
        with ExitStack() as stack:
            for _ in range(3):
                open_stream(stack, web, f"/api/jobs/{job}/events")
            with pytest.raises(StoreUnavailableError, match="3 open streams"):
                asyncio.run(follow(job, [0.0] * 9, ExitStack()))


def test_long_polls_count_toward_the_quota_and_immediate_claims_do_not(
    quota_server: LiveServer,
) -> None:
    key = quota_server.key(Role.WORKER, Role.PRODUCER)
    params = {"worker": "far", "queues": {"default": 1}, "tasks": ["add"]}
    with quota_server.client(key) as web, ThreadPoolExecutor(3) as pool, ExitStack() as stack:
        waiting = [
            pool.submit(web.post, "/api/worker/claim", json=params | {"wait": 30}) for _ in range(2)
        ]
        until(lambda: quota_server.context.hub.long_polls == 2, "two claims wait")
        assert not rejected(open_stream(stack, web, "/api/events"))
        until(lambda: quota_server.context.hub.open_streams == 1, "one stream is open")
        assert rejected(open_stream(stack, web, "/api/events"))
        assert rejected(web.post("/api/worker/claim", json=params | {"wait": 30}))
        assert web.post("/api/worker/claim", json=params).json()["jobs"] == []

        async def wait() -> None:
            config = HttpConfig(url=quota_server.url, key=key, rate_limit_wait=0)
            async with HttpStore(config) as store:
                await store.claim(Claim(token=uuid4(), worker="x", queues=(("none", 1),)))
                await store.wait(("none",), 5)

        with pytest.raises(StoreUnavailableError, match="3 open streams"):
            asyncio.run(wait())
        for number in range(3):  # two for the waiting claims, one for the next
            enqueue(web, "add", a=number)
        found = [item.result().json()["jobs"] for item in waiting]
        found.append(web.post("/api/worker/claim", json=params | {"wait": 30}).json()["jobs"])
        assert [len(jobs) for jobs in found] == [1, 1, 1]
    until(lambda: quota_server.context.hub.quota.in_use == 0, "all streams are closed")
