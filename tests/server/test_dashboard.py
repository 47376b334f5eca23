"""The pages of the dashboard, as they come from the server."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import Request
from tests.server.conftest import Served

from windlass.server import dashboard

HTML = {"Accept": "text/html"}
SENT = re.compile(r'(?:href|src)="(assets/[^"]+)"')


@pytest.fixture
def web(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def test_every_page_has_a_policy_that_allows_only_own_resources(web: httpx.Client) -> None:
    for path in dashboard.PAGES:
        answer = web.get(f"/{path}".replace("{id}", "x"), headers=HTML)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "//" not in policy  # no other place
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        assert "<script>" not in answer.text
        base = "../" * path.count("/") or "./"
        assert f'<base href="{base}">' in answer.text


def test_assets_of_a_page_are_compressed_and_immutable(web: httpx.Client) -> None:
    found = set(SENT.findall(web.get("/").text))
    assert {one.rpartition(".")[2] for one in found} == {"css", "js", "svg"}
    for one in found:
        answer = web.get(f"/{one}")
        assert answer.status_code == 200, one
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        plain = web.get(f"/{one}", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == answer.content
    name = next(iter(found)).partition("/")[2].partition("/")[2]
    kept = dashboard.assets().files[name]
    assert gzip.decompress(kept.gzipped) == kept.body


def test_unknown_assets_and_assets_of_another_release_are_not_found(web: httpx.Client) -> None:
    digest = dashboard.assets().digest
    for path in ("000000000000/app.js", f"{digest}/nothing.js", f"{digest}/..%2f..%2fdashboard.py"):
        answer = web.get(f"/assets/{path}", headers=HTML)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_an_unknown_path_returns_a_page_to_browsers_and_a_problem_to_programs(
    web: httpx.Client,
) -> None:
    page = web.get("/no/such/page", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert '<base href="../../">' in page.text
    for path, headers in (("/no/such/page", {}), ("/api/nothing", HTML)):
        answer = web.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_route")


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
        answer = web.post("/api/jobs", json={"task": "add", "arguments": arguments})
        assert answer.status_code == 422
        return [one["field"] for one in answer.json()["errors"]]

    assert wrong(a="x", b="y") == ["arguments.a", "arguments.b"]
    assert wrong(b=1) == ["arguments.a"]
    assert wrong(a=1, c=2) == ["arguments.c"]


def test_tasks_show_their_defaults_and_sessions_their_permissions(web: httpx.Client) -> None:
    tasks = {one["name"]: one for one in web.get("/api/tasks").json()["tasks"]}
    assert tasks["add"]["arguments"]["properties"]["b"]["default"] == 0
    assert "default" not in tasks["add"]["arguments"]["properties"]["a"]
    permissions = web.get("/api/session").json()["permissions"]
    assert {"read", "monitor", "produce", "operate", "admin"} <= set(permissions)
