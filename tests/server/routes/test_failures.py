"""Top failures, grouped by task and error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import LiveServer, enqueue, make_app, run_server, wait_for

from windlass import Windlass
from windlass.core.codec import Codec, EncryptingCodec, JsonCodec, Purpose
from windlass.core.decisions.outcome import Failed
from windlass.insights.failure_groups import MAX_SCANNED
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.testing.factories import claim_all, make_failure, make_job, settle_one


async def fail(app: Windlass, messages: list[str], codec: Codec | None = None, **job: Any) -> None:
    """Create a failed job with each message."""
    store, codec = app.client().store, codec or JsonCodec()
    await store.enqueue([make_job(**{"task": "film", **job}) for _ in messages])
    rows = await claim_all(store, limit=len(messages))
    for row, message in zip(rows, messages, strict=True):
        said = {"type": "OSError", "message": message, "traceback": "…"}
        body = codec.encode(said, Purpose.ERROR)
        error = make_failure("disk", terminal=True, body=body)
        await settle_one(store, row, Failed(failure=error))


@pytest.fixture
def keyed_server(tmp_path: Path) -> Iterator[LiveServer]:
    with run_server(
        tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make_app(tmp_path)
    ) as live_server:
        yield live_server


def get_failures(web: httpx.Client, **params: Any) -> dict[str, Any]:
    response = web.get("/api/failures", params=params)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_group_of_long_messages_returns_all_its_job_ids(
    keyed_server: LiveServer,
) -> None:
    tail = "has no readable text; " * 10
    messages = [*(f"page {n} {tail}" for n in (3, 60)), f"page 7 {tail}or so"]
    keyed_server.app.sync.call(fail(keyed_server.app, messages))
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        large, small = get_failures(web)["groups"]
        assert (large["count"], small["count"]) == (2, 1)
        assert (
            large["message"][10:] == small["message"][9:-1]
        )  # the shown first lines differ only in the number
        assert large["jobIds"] is None
        [group] = get_failures(web, group=large["key"])["groups"]
        jobs = [web.get(f"/api/jobs/{item}").json() for item in group["jobIds"]]
        said = {job["lastError"]["message"] for job in jobs}
        assert said == set(messages[:2])
        assert get_failures(web, group="0" * 24)["groups"] == []


def test_messages_that_differ_only_in_numbers_are_one_group(keyed_server: LiveServer) -> None:
    last = "disk 9 is full (0f3a-77)\nsecond line"
    messages = [*(f"disk {n} is full (0f3a-{n})\nline {n}" for n in range(3)), "gone", last]
    keyed_server.app.sync.call(fail(keyed_server.app, messages))
    keyed_server.app.sync.call(fail(keyed_server.app, ["gone"], task="other"))
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        found = get_failures(web)
        groups = [(group["task"], group["message"], group["count"]) for group in found["groups"]]
        assert groups[0] == ("film", "disk 9 is full (0f3a-77)", 4)
        assert sorted(groups[1:]) == [("film", "gone", 1), ("other", "gone", 1)]
        first = found["groups"][0]
        assert (first["code"], first["type"]) == ("disk", "OSError")
        assert first["firstAt"] < first["lastAt"]
        newest = web.get(f"/api/jobs/{first['jobId']}").json()
        assert newest["lastError"]["message"] == last
        assert newest["endedAt"] == first["lastAt"]
        assert (found["scanned"], found["capped"]) == (6, False)
        assert len(get_failures(web, limit=1)["groups"]) == 1


def test_since_limits_the_failures(keyed_server: LiveServer) -> None:
    keyed_server.app.sync.call(fail(keyed_server.app, ["gone"]))
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        soon = datetime.now(UTC) + timedelta(hours=1)
        assert get_failures(web, since=soon.isoformat())["groups"] == []
        assert web.get("/api/failures", params={"since": "2026-01-01T00:00:00"}).status_code == 422


def test_a_scoped_key_sees_only_its_own_failures(keyed_server: LiveServer) -> None:
    keyed_server.app.sync.call(fail(keyed_server.app, ["red"], owner="ann", team="t"))
    keyed_server.app.sync.call(fail(keyed_server.app, ["blue"], owner="bob", team="t"))
    for scope, messages in (({"owner": "ann"}, ["red"]), ({"team": "t"}, ["blue", "red"])):
        with keyed_server.client(keyed_server.key(Role.VIEWER, **scope)) as web:
            found = get_failures(web)
            assert [group["message"] for group in found["groups"]] == messages
            assert found["scanned"] == len(messages)


def test_encrypted_errors_are_grouped_by_code(keyed_server: LiveServer) -> None:
    sealing = EncryptingCodec({"k": bytes(32)})
    keyed_server.app.sync.call(fail(keyed_server.app, ["one", "two"], codec=sealing))
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        [group] = get_failures(web)["groups"]
        assert (group["code"], group["type"], group["message"]) == ("disk", None, None)
        assert group["count"] == 2


def test_only_the_newest_failures_are_scanned_and_capped_is_set(
    keyed_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.insights.failure_groups.MAX_SCANNED", 3)
    assert MAX_SCANNED > 3
    keyed_server.app.sync.call(fail(keyed_server.app, ["old"] * 3))
    keyed_server.app.sync.call(fail(keyed_server.app, ["new"] * 2))
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        found = get_failures(web)
        assert [(group["message"], group["count"]) for group in found["groups"]] == [
            ("new", 2),
            ("old", 1),
        ]
        assert (found["scanned"], found["capped"]) == (3, True)


def test_failures_of_a_real_worker_are_grouped(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        wait_for(web, enqueue(web, "broken", why="no film at all")["id"], "failed")
        groups = get_failures(web)["groups"]
        assert ("broken", "ValueError", "no film at all") in [
            (group["task"], group["type"], group["message"]) for group in groups
        ]
