"""Double clicks, navigation before a response, and sign-out during an action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.browser.jobs_page_helpers import make, serve_with_worker
from tests.browser.page_helpers import DashboardPage, expect, open_page, run_in_thread
from tests.server.conftest import LiveServer, enqueue, run_server, until, wait_for

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serve_with_worker(tmp_path_factory.mktemp("hurry")) as server:
        yield server


@pytest.fixture(scope="module")
def web(served: LiveServer) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def tagged(web: httpx.Client, tag: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = web.get("/api/jobs", params={"tag": tag}).json()["jobs"]
    return found


def fail_jobs(web: httpx.Client, count: int, tag: str) -> None:
    jobs = [enqueue(web, "send", {"tags": [tag]}, to="x")["id"] for _ in range(count)]
    for job in jobs:
        wait_for(web, job, "failed")


class DelayedRequests:
    """Requests whose responses are delayed until released."""

    def __init__(self, dashboard: DashboardPage, address: str) -> None:
        self.routes: list[Any] = []
        dashboard.page.route(re.compile(address), self._hold)
        self._page = dashboard.page

    def _hold(self, route: Any) -> None:
        self.routes.append(route)

    def wait(self, count: int = 1) -> None:
        until(
            lambda: self._page.wait_for_timeout(20) or len(self.routes) >= count,
            "the request is sent",
        )

    def release(self) -> None:
        for route in self.routes:
            route.continue_()
        self.routes = []


def fill_form(dashboard: DashboardPage, tag: str) -> None:
    dashboard.page.get_by_label("a", exact=True).fill("1")
    dashboard.page.get_by_text("Options", exact=True).click()
    dashboard.page.get_by_label("tags").fill(tag)


@pytest.mark.slow
def test_a_form_submitted_twice_creates_one_job(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    with open_page(browser, served.url, "enqueue?task=add") as dashboard:
        fill_form(dashboard, "twice")
        twice = "form => { form.requestSubmit(); form.requestSubmit(); form.requestSubmit(); }"
        dashboard.page.locator("main form").evaluate(twice)
        dashboard.page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}"))
        assert len(tagged(web, "twice")) == 1


@pytest.mark.slow
def test_a_form_submitted_again_after_an_error_has_the_same_idempotency_key(
    browser: Any, served: LiveServer
) -> None:
    keys: list[str] = []

    def refuse(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        route.fulfill(status=400, json={"title": "Error", "detail": "on the way"})

    with open_page(
        browser, served.url, "enqueue?task=add", expected=("status of 400",)
    ) as dashboard:
        dashboard.page.route(re.compile("/api/jobs$"), refuse)
        fill_form(dashboard, "again")
        for argument in ("1", "1", "2"):
            dashboard.page.get_by_label("a", exact=True).fill(argument)
            with dashboard.page.expect_response(re.compile("/api/jobs$")):
                dashboard.page.locator("main form button[type=submit]").click()
            expect(dashboard.page.get_by_role("alert")).to_contain_text("on the way")
        assert keys[0] == keys[1] != keys[2]


@pytest.mark.slow
def test_a_late_response_does_not_navigate(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    fail_jobs(web, 1, "left")
    [job] = tagged(web, "left")
    with open_page(browser, served.url, "enqueue?task=add") as dashboard:
        held = DelayedRequests(dashboard, "/api/jobs$")
        fill_form(dashboard, "late")
        dashboard.page.locator("main form button[type=submit]").click()
        held.wait()
        dashboard.page.get_by_role("link", name="Workers", exact=True).click()
        held.release()
        expect(dashboard.page.locator(".toast")).to_contain_text("Enqueued:")
        expect(dashboard.heading("Workers")).to_be_visible()
        assert dashboard.page.url == f"{served.url}/workers"
        dashboard.navigate(f"jobs/{job['id']}")
        held = DelayedRequests(dashboard, "/retry$")
        dashboard.button("Retry this job").click()
        held.wait()
        dashboard.page.go_back()
        expect(dashboard.heading("Workers")).to_be_visible()
        held.release()
        expect(dashboard.page.locator(".toast").last).to_contain_text("Retried as")
        assert dashboard.page.url == f"{served.url}/workers"


def test_a_double_click_opens_one_dialog(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    fail_jobs(web, 2, "click")
    with open_page(browser, served.url, "jobs?tag=click&state=failed") as dashboard:
        dashboard.page.get_by_label("Select this page").check()
        retry = dashboard.page.get_by_role("button", name="Retry", exact=True)
        retry.evaluate("button => { button.click(); button.click(); }")
        expect(dashboard.page.get_by_role("dialog")).to_have_count(1)
        dashboard.button("Go back").click()
        dashboard.navigate("failures")
        group = dashboard.page.locator(".failure", has_text="send").first
        again = group.get_by_role("button", name="Retry all")
        again.evaluate("button => { button.click(); button.click(); }")
        expect(dashboard.page.get_by_role("dialog")).to_have_count(1)


@pytest.mark.slow
def test_a_bulk_action_on_selected_jobs_is_one_request(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    jobs = [enqueue(web, "add", {"tags": ["selected"], "hold": True}, a=n)["id"] for n in range(4)]
    with open_page(browser, served.url, "jobs?tag=selected") as dashboard:
        dashboard.page.get_by_label("Select this page").check()
        requests: list[str] = []
        dashboard.page.on(
            "request", lambda request: requests.append(f"{request.method} {request.url}")
        )
        dashboard.page.get_by_role("button", name="Cancel", exact=True).click()
        assert web.post(f"/api/jobs/{jobs[0]}/cancel").status_code == 200
        assert web.delete(f"/api/jobs/{jobs[0]}").status_code == 204  # during the confirmation
        dashboard.page.get_by_role("button", name="Cancel 4 jobs").click()
        toast = dashboard.page.locator(".toast")
        expect(toast).to_contain_text("Canceled 3 jobs.")
        expect(toast).to_contain_text("1 job no longer exists")
        sent = [request for request in requests if not request.startswith("GET ")]
        assert sent == [f"POST {served.url}/api/jobs/actions"]
    assert {job["state"] for job in tagged(web, "selected")} == {"canceled"}


@pytest.mark.slow
def test_a_bulk_action_affects_no_more_jobs_than_confirmed(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    fail_jobs(web, 3, "agreed")
    with open_page(browser, served.url, "jobs?tag=agreed&state=failed") as dashboard:
        expect(dashboard.page.locator("tr.job:not(.placeholder)")).to_have_count(3)
        dashboard.navigate("failures")
        dashboard.page.go_back()
        dashboard.page.get_by_label("Select this page").check()
        dashboard.navigate("jobs?tag=agreed")
        dashboard.page.go_back()
        # The selection is cleared.
        expect(dashboard.page.locator(".jobs-bar")).not_to_contain_text("selected")
    with open_page(browser, served.url, "failures") as dashboard:
        alike = dashboard.page.locator(".failure", has_text="x does not answer")
        alike.get_by_role("button", name="Retry all").click()
        question = dashboard.page.get_by_role("dialog")
        number = re.search(r"Retry (\d+) jobs\?", question.inner_text())
        assert number is not None
        before = len(retried(web))
        fail_jobs(web, 2, "agreed")
        dashboard.page.get_by_role("button", name=f"Retry {number[1]} jobs").click()
        expect(dashboard.page.locator(".toast")).to_be_visible()
        assert len(retried(web)) - before <= int(number[1])
        assert len([job for job in tagged(web, "agreed") if job["retriedAs"] is None]) > 1


def retried(web: httpx.Client) -> list[str]:
    jobs = web.get("/api/jobs", params={"task": "send", "limit": 1000}).json()["jobs"]
    return [job["id"] for job in jobs if job["retriedAs"] is not None]


@pytest.mark.slow
def test_leaving_a_page_closes_its_dialog(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    fail_jobs(web, 1, "dialog")
    with open_page(browser, served.url, "jobs?tag=dialog") as dashboard:
        dashboard.navigate("jobs?tag=dialog&state=failed")
        dashboard.page.get_by_label("Select this page").check()
        dashboard.page.get_by_role("button", name="Retry", exact=True).click()
        expect(dashboard.page.get_by_role("dialog")).to_be_visible()
        dashboard.page.go_back()
        expect(dashboard.page.get_by_role("dialog")).to_have_count(0)
        expect(dashboard.page).to_have_url(f"{served.url}/jobs?tag=dialog")


@pytest.mark.slow
def test_an_error_clears_the_rows_of_the_previous_filters(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    fail_jobs(web, 1, "filtered")
    refused = ("status of 422",)
    with open_page(browser, served.url, "jobs?tag=filtered", expected=refused) as dashboard:
        rows = dashboard.page.locator("tr.job:not(.placeholder)")
        expect(rows).to_have_count(1)
        dashboard.button("More filters").click()
        dashboard.page.get_by_label("Created", exact=True).select_option("Custom range")
        expect(dashboard.page.get_by_label("Created before")).to_be_visible()  # already open
        dashboard.navigate("jobs?tag=filtered&state=wrong")
        expect(dashboard.page.get_by_role("alert")).to_contain_text("state")
        expect(rows).to_have_count(0)
        dashboard.page.go_back()
        expect(rows).to_have_count(1)
        dashboard.page.get_by_label("Search by task").fill("nothing like it")
        dashboard.button("Clear all filters").click()  # before the debounced search
        dashboard.page.wait_for_timeout(500)
        expect(dashboard.page).to_have_url(f"{served.url}/jobs")


@pytest.mark.slow
def test_an_undecodable_url_shows_an_error_page(browser: Any, served: LiveServer) -> None:
    with open_page(browser, served.url, "jobs/%E0%A4%A", expected=("status of",)) as dashboard:
        expect(dashboard.page.locator("main [role=alert], main .empty")).to_be_visible()
        dashboard.page.get_by_role("link", name="Workers", exact=True).click()
        expect(dashboard.heading("Workers")).to_be_visible()


@pytest.mark.slow
def test_a_bulk_action_ends_at_sign_out(browser: Any, tmp_path: Path) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make(tmp_path)) as secured:
        admin, other = run_in_thread(lambda: [secured.key(Role.ADMIN), secured.key(Role.OPERATOR)])
        made = [{"task": "add", "arguments": {"a": 1}, "hold": True}] * 150
        with secured.client(admin) as web:
            web.post("/api/jobs/batch", json={"jobs": made})
            with open_page(browser, secured.url, "jobs?state=created", key=admin) as dashboard:
                dashboard.page.get_by_label("Select this page").check()
                dashboard.button("Select all matching").click()
                dashboard.page.get_by_role("button", name="Cancel", exact=True).click()
                held = DelayedRequests(dashboard, "/api/jobs/actions$")
                dashboard.button("Cancel 150 jobs").click()
                held.wait()
                dashboard.button("Sign out").click()
                dashboard.page.get_by_label("API key").fill(other)
                dashboard.button("Sign in").click()
                expect(dashboard.heading("Jobs")).to_be_visible()
                held.release()
                until(
                    lambda: dashboard.page.wait_for_timeout(20) or len(canceled(web)) == 100,
                    "the sent batch is done",
                )
                dashboard.page.wait_for_timeout(500)
                assert held.routes == []  # no further request for the other user
                expect(dashboard.page.locator(".toast")).to_have_count(0)
                dashboard.ignore_console("401")
            assert len(canceled(web)) == 100


def canceled(web: httpx.Client) -> list[str]:
    found = web.get("/api/jobs?state=canceled&limit=1000").json()
    return [job["id"] for job in found["jobs"]]
