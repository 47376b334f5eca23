"""What failed most, by task and error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import Served, enqueue, make_app, serving, wait_for

from windlass import Windlass
from windlass.core.codec import Codec, EncryptingCodec, JsonCodec, Purpose
from windlass.core.decisions.outcome import Failed
from windlass.insights.failure_groups import MAX_SCANNED
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.testing.factories import claim_all, make_failure, make_job, settle_one


async def fail(app: Windlass, messages: list[str], codec: Codec | None = None, **job: Any) -> None:
    """A job for each message, that failed with it."""
    store, codec = app.client().store, codec or JsonCodec()
    await store.enqueue([make_job(**{"task": "film", **job}) for _ in messages])
    rows = await claim_all(store, limit=len(messages))
    for row, message in zip(rows, messages, strict=True):
        said = {"type": "OSError", "message": message, "traceback": "…"}
        body = codec.encode(said, Purpose.ERROR)
        error = make_failure("disk", terminal=True, body=body)
        await settle_one(store, row, Failed(failure=error))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make_app(tmp_path)) as one:
        yield one


def told(web: httpx.Client, **asked: Any) -> dict[str, Any]:
    answer = web.get("/api/failures", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_long_lines_that_differ_in_numbers_only_are_one_group_with_all_of_its_jobs(
    empty: Served,
) -> None:
    tail = "has no text that anybody could read; " * 10
    messages = [*(f"page {n} {tail}" for n in (3, 60)), f"page 7 {tail}or so"]
    empty.app.sync.call(fail(empty.app, messages))
    with empty.client(empty.key(Role.VIEWER)) as web:
        large, small = told(web)["groups"]
        assert (large["count"], small["count"]) == (2, 1)
        assert large["message"][10:] == small["message"][9:-1]  # what is shown of both is the same
        assert large["jobIds"] is None
        [alone] = told(web, group=large["key"])["groups"]
        jobs = [web.get(f"/api/jobs/{one}").json() for one in alone["jobIds"]]
        said = {one["lastError"]["message"] for one in jobs}
        assert said == set(messages[:2])
        assert told(web, group="0" * 24)["groups"] == []


def test_errors_that_differ_in_numbers_only_are_one_group(empty: Served) -> None:
    last = "disk 9 is full (0f3a-77)\nsecond line"
    messages = [*(f"disk {n} is full (0f3a-{n})\nline {n}" for n in range(3)), "gone", last]
    empty.app.sync.call(fail(empty.app, messages))
    empty.app.sync.call(fail(empty.app, ["gone"], task="other"))
    with empty.client(empty.key(Role.VIEWER)) as web:
        found = told(web)
        told_of = [(one["task"], one["message"], one["count"]) for one in found["groups"]]
        assert told_of[0] == ("film", "disk 9 is full (0f3a-77)", 4)
        assert sorted(told_of[1:]) == [("film", "gone", 1), ("other", "gone", 1)]
        first = found["groups"][0]
        assert (first["code"], first["type"]) == ("disk", "OSError")
        assert first["firstAt"] < first["lastAt"]
        newest = web.get(f"/api/jobs/{first['jobId']}").json()
        assert newest["lastError"]["message"] == last
        assert newest["endedAt"] == first["lastAt"]
        assert (found["scanned"], found["capped"]) == (6, False)
        assert len(told(web, limit=1)["groups"]) == 1


def test_a_window_is_kept(empty: Served) -> None:
    empty.app.sync.call(fail(empty.app, ["gone"]))
    with empty.client(empty.key(Role.VIEWER)) as web:
        soon = datetime.now(UTC) + timedelta(hours=1)
        assert told(web, since=soon.isoformat())["groups"] == []
        assert web.get("/api/failures", params={"since": "2026-01-01T00:00:00"}).status_code == 422


def test_one_sees_what_failed_of_ones_own(empty: Served) -> None:
    empty.app.sync.call(fail(empty.app, ["red"], owner="ann", team="t"))
    empty.app.sync.call(fail(empty.app, ["blue"], owner="bob", team="t"))
    for whose, messages in (({"owner": "ann"}, ["red"]), ({"team": "t"}, ["blue", "red"])):
        with empty.client(empty.key(Role.VIEWER, **whose)) as web:
            found = told(web)
            assert [one["message"] for one in found["groups"]] == messages
            assert found["scanned"] == len(messages)


def test_an_error_whose_key_is_not_here_is_grouped_by_its_code(empty: Served) -> None:
    sealing = EncryptingCodec({"k": bytes(32)})
    empty.app.sync.call(fail(empty.app, ["one", "two"], codec=sealing))
    with empty.client(empty.key(Role.VIEWER)) as web:
        [group] = told(web)["groups"]
        assert (group["code"], group["type"], group["message"]) == ("disk", None, None)
        assert group["count"] == 2


def test_the_last_that_failed_are_looked_at_and_it_is_said(
    empty: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.insights.failure_groups.MAX_SCANNED", 3)
    assert MAX_SCANNED > 3
    empty.app.sync.call(fail(empty.app, ["old"] * 3))
    empty.app.sync.call(fail(empty.app, ["new"] * 2))
    with empty.client(empty.key(Role.VIEWER)) as web:
        found = told(web)
        assert [(one["message"], one["count"]) for one in found["groups"]] == [
            ("new", 2),
            ("old", 1),
        ]
        assert (found["scanned"], found["capped"]) == (3, True)


def test_what_a_real_worker_failed_at_is_told(working: Served) -> None:
    with working.client() as web:
        wait_for(web, enqueue(web, "broken", why="no film at all")["id"], "failed")
        groups = told(web)["groups"]
        assert ("broken", "ValueError", "no film at all") in [
            (one["task"], one["type"], one["message"]) for one in groups
        ]
