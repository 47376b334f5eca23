"""People who click twice, leave before the answer is there, go back, and sign out meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.browser.list_helpers import busy, make
from tests.browser.page_helpers import Look, aside, expect, looking
from tests.server.conftest import Served, enqueue, serving, until, wait_for

from windlass.server.auth.api_keys import Role
from windlass.server.config import Door, ServerConfig


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with busy(tmp_path_factory.mktemp("hurry")) as one:
        yield one


@pytest.fixture(scope="module")
def web(served: Served) -> Iterator[httpx.Client]:
    with served.client() as one:
        yield one


def tagged(web: httpx.Client, tag: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = web.get("/api/jobs", params={"tag": tag}).json()["jobs"]
    return found


def lose(web: httpx.Client, count: int, tag: str) -> None:
    jobs = [enqueue(web, "send", {"tags": [tag]}, to="x")["id"] for _ in range(count)]
    for job in jobs:
        wait_for(web, job, "failed")


class Held:
    """Requests that were sent, and whose answers wait until they are let go."""

    def __init__(self, look: Look, address: str) -> None:
        self.routes: list[Any] = []
        look.page.route(re.compile(address), self._hold)
        self._page = look.page

    def _hold(self, route: Any) -> None:
        self.routes.append(route)

    def wait(self, count: int = 1) -> None:
        until(lambda: self._page.wait_for_timeout(20) or len(self.routes) >= count, "it is asked")

    def let_go(self) -> None:
        for route in self.routes:
            route.continue_()
        self.routes = []


def fill_form(look: Look, tag: str) -> None:
    look.page.get_by_label("a", exact=True).fill("1")
    look.page.get_by_text("Options", exact=True).click()
    look.page.get_by_label("tags").fill(tag)


@pytest.mark.slow
def test_a_form_that_is_sent_twice_makes_one_job(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    with looking(browser, served.url, "enqueue?task=add") as look:
        fill_form(look, "twice")
        twice = "form => { form.requestSubmit(); form.requestSubmit(); form.requestSubmit(); }"
        look.page.locator("main form").evaluate(twice)
        look.page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}"))
        assert len(tagged(web, "twice")) == 1


@pytest.mark.slow
def test_the_same_form_sent_again_after_trouble_has_the_same_key(
    browser: Any, served: Served
) -> None:
    keys: list[str] = []

    def refuse(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        route.fulfill(status=400, json={"title": "Trouble", "detail": "on the way"})

    with looking(browser, served.url, "enqueue?task=add", expected=("status of 400",)) as look:
        look.page.route(re.compile("/api/jobs$"), refuse)
        fill_form(look, "again")
        for argument in ("1", "1", "2"):
            look.page.get_by_label("a", exact=True).fill(argument)
            with look.page.expect_response(re.compile("/api/jobs$")):
                look.page.locator("main form button[type=submit]").click()
            expect(look.page.get_by_role("alert")).to_contain_text("on the way")
        assert keys[0] == keys[1] != keys[2]


@pytest.mark.slow
def test_whoever_left_before_the_answer_stays_where_they_are(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    lose(web, 1, "left")
    [job] = tagged(web, "left")
    with looking(browser, served.url, "enqueue?task=add") as look:
        held = Held(look, "/api/jobs$")
        fill_form(look, "late")
        look.page.locator("main form button[type=submit]").click()
        held.wait()
        look.page.get_by_role("link", name="Workers", exact=True).click()
        held.let_go()
        expect(look.page.locator(".toast")).to_contain_text("Enqueued:")
        expect(look.heading("Workers")).to_be_visible()
        assert look.page.url == f"{served.url}/workers"
        look.move(f"jobs/{job['id']}")
        held = Held(look, "/retry$")
        look.button("Retry this job").click()
        held.wait()
        look.page.go_back()
        expect(look.heading("Workers")).to_be_visible()
        held.let_go()
        expect(look.page.locator(".toast").last).to_contain_text("Retried as")
        assert look.page.url == f"{served.url}/workers"


def test_a_verb_that_is_clicked_twice_asks_once(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    lose(web, 2, "click")
    with looking(browser, served.url, "jobs?tag=click&state=failed") as look:
        look.page.get_by_label("Select this page").check()
        retry = look.page.get_by_role("button", name="Retry", exact=True)
        retry.evaluate("one => { one.click(); one.click(); }")
        expect(look.page.get_by_role("dialog")).to_have_count(1)
        look.button("Not now").click()
        look.move("failures")
        group = look.page.locator(".failure", has_text="send").first
        again = group.get_by_role("button", name="Retry all")
        again.evaluate("one => { one.click(); one.click(); }")
        expect(look.page.get_by_role("dialog")).to_have_count(1)


@pytest.mark.slow
def test_some_are_acted_on_with_one_request(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    jobs = [enqueue(web, "add", {"tags": ["one"], "hold": True}, a=n)["id"] for n in range(4)]
    with looking(browser, served.url, "jobs?tag=one") as look:
        look.page.get_by_label("Select this page").check()
        asked: list[str] = []
        look.page.on("request", lambda one: asked.append(f"{one.method} {one.url}"))
        look.page.get_by_role("button", name="Cancel", exact=True).click()
        assert web.post(f"/api/jobs/{jobs[0]}/cancel").status_code == 200
        assert web.delete(f"/api/jobs/{jobs[0]}").status_code == 204  # while one is asked
        look.page.get_by_role("button", name="Cancel 4 jobs").click()
        toast = look.page.locator(".toast")
        expect(toast).to_contain_text("Canceled 3 jobs.")
        expect(toast).to_contain_text("1 job no longer there")
        sent = [one for one in asked if not one.startswith("GET ")]
        assert sent == [f"POST {served.url}/api/jobs/actions"]
    assert {one["state"] for one in tagged(web, "one")} == {"canceled"}


@pytest.mark.slow
def test_not_more_is_done_than_was_agreed_to(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    lose(web, 3, "agreed")
    with looking(browser, served.url, "jobs?tag=agreed&state=failed") as look:
        expect(look.page.locator("tr.job:not(.bone)")).to_have_count(3)
        look.move("failures")
        look.page.go_back()
        look.page.get_by_label("Select this page").check()
        look.move("jobs?tag=agreed")
        look.page.go_back()
        expect(look.page.locator(".jobs-bar")).not_to_contain_text("selected")  # nor what is chosen
    with looking(browser, served.url, "failures") as look:
        alike = look.page.locator(".failure", has_text="x does not answer")
        alike.get_by_role("button", name="Retry all").click()
        question = look.page.get_by_role("dialog")
        number = re.search(r"Retry (\d+) jobs\?", question.inner_text())
        assert number is not None
        before = len(retried(web))
        lose(web, 2, "agreed")
        look.page.get_by_role("button", name=f"Retry {number[1]} jobs").click()
        expect(look.page.locator(".toast")).to_be_visible()
        assert len(retried(web)) - before <= int(number[1])
        assert len([one for one in tagged(web, "agreed") if one["retriedAs"] is None]) > 1


def retried(web: httpx.Client) -> list[str]:
    jobs = web.get("/api/jobs", params={"task": "send", "limit": 1000}).json()["jobs"]
    return [one["id"] for one in jobs if one["retriedAs"] is not None]


@pytest.mark.slow
def test_a_question_goes_with_the_page_that_asked_it(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    lose(web, 1, "asked")
    with looking(browser, served.url, "jobs?tag=asked") as look:
        look.move("jobs?tag=asked&state=failed")
        look.page.get_by_label("Select this page").check()
        look.page.get_by_role("button", name="Retry", exact=True).click()
        expect(look.page.get_by_role("dialog")).to_be_visible()
        look.page.go_back()
        expect(look.page.get_by_role("dialog")).to_have_count(0)
        expect(look.page).to_have_url(f"{served.url}/jobs?tag=asked")


@pytest.mark.slow
def test_what_other_filters_found_is_not_shown_beside_an_error(
    browser: Any, served: Served, web: httpx.Client
) -> None:
    lose(web, 1, "beside")
    refused = ("status of 422",)
    with looking(browser, served.url, "jobs?tag=beside", expected=refused) as look:
        rows = look.page.locator("tr.job:not(.bone)")
        expect(rows).to_have_count(1)
        look.button("More filters").click()
        look.page.get_by_label("Created", exact=True).select_option("From … to …")
        expect(look.page.get_by_label("Created before")).to_be_visible()  # it was open already
        look.move("jobs?tag=beside&state=wrong")
        expect(look.page.get_by_role("alert")).to_contain_text("state")
        expect(rows).to_have_count(0)
        look.page.go_back()
        expect(rows).to_have_count(1)
        look.page.get_by_label("Text in task").fill("nothing like it")
        look.button("Clear all filters").click()  # before what is typed is asked for
        look.page.wait_for_timeout(500)
        expect(look.page).to_have_url(f"{served.url}/jobs")


@pytest.mark.slow
def test_an_address_that_nobody_can_read_leads_to_a_page_that_says_so(
    browser: Any, served: Served
) -> None:
    with looking(browser, served.url, "jobs/%E0%A4%A", expected=("status of",)) as look:
        expect(look.page.locator("main [role=alert], main .empty")).to_be_visible()
        look.page.get_by_role("link", name="Workers", exact=True).click()
        expect(look.heading("Workers")).to_be_visible()


@pytest.mark.slow
def test_what_somebody_began_ends_when_they_sign_out(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path, ServerConfig(door=Door.KEYS), app=make(tmp_path)) as shut:
        admin, other = aside(lambda: [shut.key(Role.ADMIN), shut.key(Role.OPERATOR)])
        made = [{"task": "add", "arguments": {"a": 1}, "hold": True}] * 150
        with shut.client(admin) as web:
            web.post("/api/jobs/batch", json={"jobs": made})
            with looking(browser, shut.url, "jobs?state=created", key=admin) as look:
                look.page.get_by_label("Select this page").check()
                look.button("Select all that match").click()
                look.page.get_by_role("button", name="Cancel", exact=True).click()
                held = Held(look, "/api/jobs/actions$")
                look.button("Cancel 150 jobs").click()
                held.wait()
                look.button("Sign out").click()
                look.page.get_by_label("API key").fill(other)
                look.button("Sign in").click()
                expect(look.heading("Jobs")).to_be_visible()
                held.let_go()
                until(
                    lambda: look.page.wait_for_timeout(20) or len(canceled(web)) == 100,
                    "what was sent is done",
                )
                look.page.wait_for_timeout(500)
                assert held.routes == []  # nothing more was asked in another's name
                expect(look.page.locator(".toast")).to_have_count(0)
                look.said = [one for one in look.said if "401" not in one]  # the browser's own
            assert len(canceled(web)) == 100


def canceled(web: httpx.Client) -> list[str]:
    found = web.get("/api/jobs?state=canceled&limit=1000").json()
    return [one["id"] for one in found["jobs"]]
