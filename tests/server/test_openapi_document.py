"""The OpenAPI document describes every route and every parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import LiveServer

from windlass.server.routes.route_table import ROUTES


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_the_openapi_document_describes_every_route(web: httpx.Client) -> None:
    document = web.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for route in ROUTES:
        path = route.path.replace(":path", "")
        if route.internal:
            assert path not in document["paths"]
            continue
        result = document["paths"][path][route.method.lower()]
        assert result["summary"]
        assert str(route.status) in result["responses"]
        for status in route.problems:
            assert "application/problem+json" in result["responses"][str(status)]["content"]
    assert "Problem" in document["components"]["schemas"]
    result = document["paths"]["/api/jobs/{id}/events"]["get"]["responses"]
    assert {"application/json", "text/event-stream"} == result["200"]["content"].keys()
    assert {"200", "204", "404"} <= result.keys()
    text = str(document)
    assert not re.search(r"'\w+_\w+': \{'(type|anyOf|format)", text)  # camelCase throughout
