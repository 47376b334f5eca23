"""Pages and assets of the dashboard over HTTP."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import Request
from tests.server.conftest import LiveServer

from windlass.server import dashboard

HTML = {"Accept": "text/html"}
SENT = re.compile(r'(?:href|src)="(assets/[^"]+)"')


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_every_page_has_a_policy_that_allows_only_own_resources(web: httpx.Client) -> None:
    for path in dashboard.PAGES:
        response = web.get(f"/{path}".replace("{id}", "x"), headers=HTML)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "//" not in policy  # no other host
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        assert "<script>" not in response.text
        base = "../" * path.count("/") or "./"
        assert f'<base href="{base}">' in response.text


def test_assets_of_a_page_are_compressed_and_immutable(web: httpx.Client) -> None:
    found = set(SENT.findall(web.get("/").text))
    assert {item.rpartition(".")[2] for item in found} == {"css", "js", "svg"}
    for item in found:
        response = web.get(f"/{item}")
        assert response.status_code == 200, item
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["content-encoding"] == "gzip"
        plain = web.get(f"/{item}", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == response.content
    name = next(iter(found)).partition("/")[2].partition("/")[2]
    kept = dashboard.assets().files[name]
    assert gzip.decompress(kept.gzipped) == kept.body


def test_unknown_assets_and_assets_of_another_release_are_not_found(web: httpx.Client) -> None:
    digest = dashboard.assets().digest
    for path in ("000000000000/app.js", f"{digest}/nothing.js", f"{digest}/..%2f..%2fdashboard.py"):
        response = web.get(f"/assets/{path}", headers=HTML)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_an_unknown_path_returns_a_page_to_browsers_and_a_problem_to_programs(
    web: httpx.Client,
) -> None:
    page = web.get("/no/such/page", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert '<base href="../../">' in page.text
    for path, headers in (("/no/such/page", {}), ("/api/nothing", HTML)):
        response = web.get(path, headers=headers)
        assert (response.status_code, response.json()["code"]) == (404, "no_route")


def test_a_trailing_slash_redirects_within_the_server(web: httpx.Client) -> None:
    for path, right in (
        ("/jobs/?state=failed", "/jobs?state=failed"),
        ("/flows/a%3Fb%2Fc/", "/flows/a%3Fb%2Fc"),
    ):
        led = web.get(path, headers={**HTML, "Host": "elsewhere.test"})
        assert (led.status_code, led.headers["location"][:3]) == (307, "../")
        assert led.next_request is not None
        assert led.next_request.url.raw_path.decode() == right
        assert "elsewhere" not in led.headers["location"]
    led = web.get(f"{str(web.base_url).rstrip('/')}//elsewhere.test/", headers=HTML)
    assert led.headers["location"] == "../elsewhere.test"
    for path in ("/api/jobs/", "/jobs//"):
        assert web.get(path, headers=HTML).status_code == 404


def test_a_redirect_location_is_percent_encoded() -> None:
    scope = {
        "type": "http", "method": "GET", "path": "/jobs/", "raw_path": b"/jobs/", "root_path": "",
        "query_string": "q=→#\r\n".encode(), "headers": [(b"accept", b"text/html")],
    }  # fmt: skip
    led = dashboard.not_found_page(Request(scope))
    assert led is not None
    assert led.headers["location"] == "../jobs?q=%E2%86%92%23%0D%0A"


def test_invalid_arguments_are_reported_by_field(web: httpx.Client) -> None:
    def wrong(**arguments: object) -> list[str]:
        response = web.post("/api/jobs", json={"task": "add", "arguments": arguments})
        assert response.status_code == 422
        return [error["field"] for error in response.json()["errors"]]

    assert wrong(a="x", b="y") == ["arguments.a", "arguments.b"]
    assert wrong(b=1) == ["arguments.a"]
    assert wrong(a=1, c=2) == ["arguments.c"]


def test_tasks_show_their_defaults_and_sessions_their_permissions(web: httpx.Client) -> None:
    tasks = {task["name"]: task for task in web.get("/api/tasks").json()["tasks"]}
    assert tasks["add"]["arguments"]["properties"]["b"]["default"] == 0
    assert "default" not in tasks["add"]["arguments"]["properties"]["a"]
    permissions = web.get("/api/session").json()["permissions"]
    assert {"read", "monitor", "produce", "operate", "admin"} <= set(permissions)
