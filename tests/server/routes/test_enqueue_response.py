"""The response of `POST /api/jobs` equals the stored job, although a new job is not read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import enqueue, make_app, run_server

from windlass import Limit


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": 3, "tags": ["a"], "team": "t", "headers": {"x": "y"}},
        {"hold": True},
        {"delay": 60, "expiresIn": "2h"},
        {"uniqueKey": "k"},
        {"requestId": "r"},
        {"limitKey": "l"},
    ],
    ids=str,
)
@pytest.mark.parametrize("limited", [False, True], ids=["free", "limited"])
def test_the_enqueue_response_equals_the_stored_job(
    tmp_path: Path, options: dict[str, Any], *, limited: bool
) -> None:
    app = make_app(tmp_path)
    with run_server(tmp_path, app=app) as server, server.client() as web:
        if limited:
            app.limits.set("task:add", Limit(concurrency=1))
            enqueue(web, "add", a=0)  # it takes the only slot
        result = enqueue(web, "add", options, a=1)
        assert result.pop("duplicate") is False
        assert web.get(f"/api/jobs/{result['id']}").json() == result
        if limited and not options:
            assert (result["state"], result["gate"]) == ("created", "task:add")
