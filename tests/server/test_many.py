"""Many jobs on one stream: the logs of named ones, and snapshots of a list."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import (
    STREAM,
    Said,
    Served,
    enqueue,
    messages,
    said,
    serving,
    until,
    wait_for,
)

from windlass.server.config import Door, ServerConfig


def follow(web: httpx.Client, after: str) -> list[Said]:
    with web.stream("GET", "/api/events", headers=STREAM, params={"after": after}) as response:
        assert response.status_code == 200, response.read()
        return said(response)


def test_the_logs_of_named_jobs_come_on_one_stream_each_whole_and_in_order(
    working: Served, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with working.client() as web:
        ids = [enqueue(web, "film", gate=str(gate), lines=5)["id"] for _ in range(4)]
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(follow, web, ",".join(f"{one}:0" for one in ids))
            until(lambda: working.site.hub.followed == 4, "all are followed")
            gate.touch()
            found = reading.result()
        lasts = {one: wait_for(web, one, "succeeded")["seq"] for one in ids}
    logs: dict[str, list[int]] = defaultdict(list)
    for one in found:
        assert one.id is None  # the reader keeps a cursor for each job
        assert one.type == one.data["type"]
        logs[one.data["jobId"]].append(one.data["seq"])
    assert logs == {one: list(range(1, last + 1)) for one, last in lasts.items()}


def test_each_named_job_goes_on_from_its_own_cursor(served: Served) -> None:
    with served.client() as web:
        one, two = (enqueue(web, "add", a=n)["id"] for n in range(2))
        for job in (one, two):
            web.post(f"/api/jobs/{job}/cancel")
        found = follow(web, f"{one}:2,{two}:0")
        assert sorted((said.data["jobId"] == two, said.data["seq"]) for said in found) == [
            (False, 3), (True, 1), (True, 2), (True, 3),
        ]  # fmt: skip
        ended = web.get("/api/events", params={"after": f"{one}:3,{two}:3"}, headers=STREAM)
        assert ended.status_code == 204


NOBODYS = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize(
    ("after", "status"),
    [("x:1", 422), (f"{NOBODYS}:x", 422), (f"{NOBODYS}:0", 404), ("", 422)],
)
def test_a_vector_that_is_wrong_is_refused(served: Served, after: str, status: int) -> None:
    with served.client() as web:
        answer = web.get("/api/events", params={"after": after}, headers=STREAM)
        assert answer.status_code == status
        many = ",".join(f"{uuid4()}:0" for _ in range(101))
        assert web.get("/api/events", params={"after": many}).status_code == 422


def test_a_list_is_told_by_snapshots_of_which_the_newest_wins(tmp_path: Path) -> None:
    config = ServerConfig(door=Door.LOCAL, look=0.02)
    with serving(tmp_path, config) as served, served.client() as web:
        old = enqueue(web, "add", {"queue": "media"}, a=1)["id"]
        enqueue(web, "add", a=1)  # on no list that is watched
        state: dict[str, Any] = {}
        with web.stream(
            "GET", "/api/events", headers=STREAM, params={"queue": "media", "state": "queued"}
        ) as response:
            news = messages(response)

            def hear(**wanted: str) -> None:
                while state != wanted:
                    one = next(news)
                    assert isinstance(one, Said)
                    assert one.type == "snapshot"
                    assert {"id", "seq", "percent"} <= one.data.keys() or not one.data["state"]
                    state[one.data["id"]] = one.data["state"]

            hear(**{old: "queued"})
            new = enqueue(web, "add", {"queue": "media"}, a=2)["id"]
            hear(**{old: "queued", new: "queued"})
            web.post(f"/api/jobs/{old}/cancel")  # it leaves the list, and says how
            hear(**{old: "canceled", new: "queued"})
        until(lambda: served.site.hub.open == 0, "it is let go")
        assert not served.site.watches._watches


def test_a_list_filter_that_is_wrong_is_named(served: Served) -> None:
    with served.client() as web:
        assert web.get("/api/events", params={"state": "lost"}).status_code == 422
