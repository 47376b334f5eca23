"""Malformed requests get documented responses, and never an internal error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.conftest import LiveServer, enqueue

from windlass.server.routes.route_table import ROUTES, Route

# Lone surrogates, control characters and NUL included.
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
FIELDS = """
    task arguments queue priority delay hold expiresIn uniqueKey debounce owner team tags headers id
    runAt requestId dependsOn onParent name cron every tz missed jobs action filter cursor reason
    roles limitKey
"""
FILTERS = """
    state queue task tag owner team error text worker requestId uniqueKey retryOf flowId
    createdFrom createdTo limit cursor lastEventId fromSequence fromTimestamp types after since
    until step ticket x
"""
KNOWN = st.sampled_from(["add", "queued", "cancel", "default", "5m", "*/5 * * * *", str(uuid4())])
BODY = st.dictionaries(st.sampled_from(FIELDS.split()), JSON | KNOWN, max_size=5) | JSON
PARAMS = st.dictionaries(
    st.sampled_from(FILTERS.split()),
    st.text(max_size=20) | KNOWN | st.integers().map(str),
    max_size=3,
)
# Streams of lists never end.
FINITE_ROUTES = [route for route in ROUTES if route.path != "/api/events"]


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    route=st.sampled_from(FINITE_ROUTES), body=BODY, params=PARAMS, known=st.booleans(), name=TEXT
)
def test_random_requests_get_documented_responses(
    web: httpx.Client, *, route: Route, body: Any, params: dict[str, str], known: bool, name: str
) -> None:
    job = enqueue(web, "add", a=1)["id"] if known else str(uuid4())
    quoted = "".join(f"%{byte:02X}" for byte in name.encode("utf-8", "replace")) or "n"
    path = route.path.replace("{id}", job).replace("{queue:path}", quoted)
    path = path.replace("{name:path}", quoted)
    content = json.dumps(body).encode() if route.method == "POST" else None
    headers = {"Content-Type": "application/json"} if content is not None else {}
    response = web.request(route.method, path, params=params, content=content, headers=headers)
    assert response.status_code < 500, response.text
    promised = {route.status, *route.responses, *route.problems, 400, 401, 404, 405, 422}
    assert response.status_code in promised
    if response.status_code >= 400:
        result = response.json()
        assert response.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "detail", "advice", "code"} <= result.keys()


def test_lone_surrogates_are_rejected_with_a_problem(web: httpx.Client) -> None:
    bodies = [
        {"task": "\ud800"},
        {"\ud800": 1},
        {"task": "add", "arguments": {"\ud800": 1}},
        {"task": "add", "arguments": {"a": 1}, "tags": ["\ud800"]},
        {"task": "add", "arguments": {"a": 1}, "owner": "\0"},
    ]
    for body in bodies:
        headers = {"Content-Type": "application/json"}
        response = web.post("/api/jobs", content=json.dumps(body).encode(), headers=headers)
        assert response.status_code in {400, 422}, body
        assert response.json()["detail"]
