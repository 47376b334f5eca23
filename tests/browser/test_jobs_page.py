"""Job list: filters, live updates, selection and bulk actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.browser.jobs_page_helpers import enqueue_many, make, serve_with_worker
from tests.browser.page_helpers import PHONE, expect, open_page, run_in_thread, sign_in
from tests.server.conftest import LiveServer, enqueue, run_server, until, wait_for

from windlass.core.admission.limit import Limit
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig

HOSTILE_TEXTS = (
    "<img src=x onerror=hacked()>",
    "<script>hacked()</script>",
    '"><svg onload=hacked()>',
    "javascript:hacked()",
    "{{7*7}}${hacked()}",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serve_with_worker(tmp_path_factory.mktemp("jobs")) as server:
        yield server


@pytest.fixture(scope="module")
def web(served: LiveServer) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def rows(page: Any) -> Any:
    return page.locator("tr.job:not(.placeholder)")


def row(page: Any, job: str) -> Any:
    return page.locator("tr.job", has=page.locator(f"#job-{job}"))


def failed(web: httpx.Client, count: int, **options: Any) -> list[str]:
    jobs = [enqueue(web, "send", options, to=f"host {n}")["id"] for n in range(count)]
    for job in jobs:
        wait_for(web, job, "failed")
    return jobs


@pytest.mark.slow
def test_the_url_contains_the_filters_and_back_removes_them(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    tags = {"tags": ["address"]}
    [failed_job] = failed(web, 1, **tags)
    sums = [enqueue(web, "add", tags, a=n)["id"] for n in range(2)]
    for job in sums:
        wait_for(web, job, "succeeded")
    with open_page(browser, served.url, "jobs?tag=address") as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(3)
        page.get_by_label("Queue", exact=True).fill("mail")
        page.get_by_label("Queue", exact=True).press("Enter")
        expect(rows(page)).to_have_count(1)
        expect(row(page, failed_job)).to_contain_text("ConnectionError")
        page.get_by_role("button", name="failed", exact=False).first.click()
        expect(page).to_have_url(re.compile(r"\?state=failed&queue=mail&tag=address$"))
        shared = page.url.removeprefix(f"{served.url}/")
        page.go_back()
        expect(page.get_by_label("Queue", exact=True)).to_have_value("mail")
        page.go_back()
        expect(page.get_by_label("Queue", exact=True)).to_have_value("")
        expect(rows(page)).to_have_count(3)
        page.go_forward()
        expect(rows(page)).to_have_count(1)
        page.get_by_role("button", name="Clear all filters").click()
        expect(page).to_have_url(f"{served.url}/jobs")
    with open_page(browser, served.url, shared) as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(1)
        expect(page.get_by_label("Queue", exact=True)).to_have_value("mail")
        chip = page.get_by_role("group", name="States").get_by_role("button", name="failed")
        expect(chip).to_have_attribute("aria-pressed", "true")


@pytest.mark.slow
def test_jobs_are_found_by_text_and_by_link_filters(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    [failed_job] = failed(web, 1, tags=["text"])
    other = wait_for(web, enqueue(web, "broken", {"tags": ["text"]}, why="x")["id"], "failed")
    refused = ("status of 422",)
    with open_page(browser, served.url, "jobs?tag=text", expected=refused) as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(2)
        page.keyboard.press("/")
        expect(page.get_by_label("Search by task")).to_be_focused()
        page.keyboard.type("DOES not")
        expect(page).to_have_url(re.compile(r"text=DOES\+not"))
        expect(rows(page)).to_have_count(1)
        expect(row(page, failed_job)).to_be_visible()
        page.get_by_label("Search by task").fill(f" {failed_job} ")
        expect(page).to_have_url(f"{served.url}/jobs/{failed_job}")
        dashboard.navigate("jobs/nonsense")
        expect(page.get_by_text("Job not found")).to_be_visible()
        page.goto(f"{served.url}/jobs?tag=text&error=ValueError&since=hour")
        expect(rows(page)).to_have_count(1)
        expect(row(page, other["id"])).to_be_visible()
        expect(page.get_by_label("Created", exact=True)).to_have_value("hour")
        page.get_by_label("Created", exact=True).select_option("Last week")
        page.get_by_role("button", name="Remove filter error ValueError").click()
        expect(page).to_have_url(re.compile(r"\?tag=text&since=week$"))
        expect(rows(page)).to_have_count(2)
        page.goto(f"{served.url}/jobs?state=wrong", wait_until="commit")
        expect(page.get_by_role("alert")).to_contain_text("state")
        dashboard.navigate("jobs?queue=nowhere")
        expect(page.get_by_text("No jobs match these filters")).to_be_visible()


@pytest.mark.slow
def test_state_counts_follow_other_filters_where_cheap(
    browser: Any, served: LiveServer, web: httpx.Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tags = {"tags": ["counted"]}
    failed(web, 2, **tags)
    wait_for(web, enqueue(web, "add", tags, a=1)["id"], "succeeded")
    job = enqueue(web, "paint", tags, gate=str(gate))["id"]
    with open_page(browser, served.url, "jobs?tag=counted") as dashboard:
        chips = dashboard.page.get_by_role("group", name="States")
        expect(chips).to_have_text(re.compile("queued0running1retrying0succeeded1failed2canceled0"))
        gate.touch()
        expect(row(dashboard.page, job)).to_contain_text("succeeded")
        expect(chips).to_have_text(re.compile("running0retrying0succeeded2failed2canceled0"))
        dashboard.navigate("jobs?tag=counted&state=failed")  # other counts may be unknown
        expect(chips).to_have_text(re.compile("runningretryingsucceededfailed2canceled0"))


@pytest.mark.slow
def test_rows_update_in_place_and_new_jobs_wait_for_a_click(
    browser: Any, served: LiveServer, web: httpx.Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tags = {"tags": ["live"]}
    first = enqueue(web, "paint", tags, gate=str(gate))["id"]
    with open_page(browser, served.url, "jobs?tag=live") as dashboard:
        page = dashboard.page
        expect(row(page, first)).to_contain_text("40 %")
        second, third = (enqueue(web, "add", tags, a=n)["id"] for n in range(2))
        expect(page.get_by_role("button", name="Show 2 new jobs")).to_be_visible()
        expect(rows(page)).to_have_count(1)
        gate.touch()
        expect(row(page, first)).to_contain_text("succeeded")
        # Also fields that snapshots do not contain are updated.
        expect(row(page, first)).to_contain_text("took")
        page.keyboard.press("n")
        expect(rows(page)).to_have_count(3)
        ids = rows(page).locator(".open").evaluate_all("found => found.map(link => link.id)")
        assert ids == [f"job-{job}" for job in (third, second, first)]
        expect(page.get_by_role("button", name="new job")).to_have_count(0)


def test_a_row_shows_for_when_and_for_which_limit_a_job_waits(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    run_in_thread(lambda: served.app.limits.set("key:stepped", Limit(concurrency=1)))
    options = {"queue": "idle", "limitKey": "ann"}  # no worker claims from this queue
    _, waiting = (enqueue(web, "stepped", options, success_file="x")["id"] for _ in range(2))
    with open_page(browser, served.url, "jobs?queue=idle") as dashboard:
        reason = row(dashboard.page, waiting).locator(".of-progress div")
        expect(reason).to_have_text(["waiting for limit key:stepped", "ann"])
        later = enqueue(web, "add", {"queue": "idle", "delay": "2h"}, a=1)["id"]
        dashboard.page.get_by_role("button", name="Show 1 new job").click()
        reason = row(dashboard.page, later).locator(".of-progress div")
        expect(reason).to_have_text([re.compile("^scheduled for .*:"), "in 1 h"])


@pytest.mark.slow
def test_a_row_that_no_longer_matches_keeps_its_position(
    browser: Any, served: LiveServer, web: httpx.Client, tmp_path: Path
) -> None:
    gates = [tmp_path / "one", tmp_path / "two"]
    jobs = [enqueue(web, "paint", {"tags": ["stay"]}, gate=str(gate))["id"] for gate in gates]
    with open_page(browser, served.url, "jobs?tag=stay&state=running") as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(2)
        gates[0].touch()
        expect(row(page, jobs[0])).to_contain_text("succeeded")
        expect(row(page, jobs[0])).to_have_class(re.compile("left"))
        expect(row(page, jobs[1])).not_to_have_class(re.compile("left"))
        expect(rows(page)).to_have_count(2)
        gates[1].touch()
        expect(row(page, jobs[1])).to_contain_text("succeeded")


@pytest.mark.slow
def test_pagination_to_older_and_newer_jobs(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    enqueue_many(served.app, 120)
    with open_page(browser, served.url, "jobs?queue=bulk&since=hour") as dashboard:
        page = dashboard.page
        seen: list[list[str]] = []

        def shown() -> list[str]:
            return list(rows(page).locator(".open").evaluate_all("all => all.map(link => link.id)"))

        for size in (50, 50, 20):
            expect(rows(page)).to_have_count(size)
            expect(page.locator("table")).to_have_attribute("aria-busy", "false")
            seen.append(shown())
            if size == 50:
                page.get_by_role("button", name="Older").click()
                until(lambda: shown() != seen[-1], "another page is shown")
        assert len({job for part in seen for job in part}) == 120
        expect(page.get_by_role("button", name="Older")).to_be_disabled()
        page.get_by_role("button", name="Newer").click()
        until(lambda: shown() == seen[1], "the previous page is shown")
        page.reload()
        expect(rows(page)).to_have_count(50)
        assert shown() == seen[1]
        job = seen[1][7].removeprefix("job-")
        web.post(f"/api/jobs/{job}/cancel")
        expect(row(page, job)).to_contain_text("canceled")  # also beyond the first page
        page.get_by_role("button", name="Newest").click()
        until(lambda: shown() == seen[0], "the newest are shown")
        expect(page).to_have_url(f"{served.url}/jobs?queue=bulk&since=hour")


@pytest.mark.slow
def test_all_matching_jobs_are_retried_after_a_confirmation_with_their_count(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    made = [{"task": "send", "arguments": {"to": "x"}, "tags": ["again"]}] * 110
    answers = web.post("/api/jobs/batch", json={"jobs": made}).json()["results"]
    jobs = {answer["job"]["id"] for answer in answers}  # more than one request handles
    for job in jobs:
        wait_for(web, job, "failed")
    with open_page(browser, served.url, "jobs?state=failed&tag=again") as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(50)
        expect(page.locator(".jobs-bar")).to_contain_text("110 jobs")
        page.get_by_label("Select this page").check()
        expect(page.locator(".jobs-bar")).to_contain_text("50 selected")
        page.get_by_role("button", name="Select all matching").click()
        page.get_by_role("button", name="Retry", exact=True).click()
        question = page.get_by_role("dialog")
        expect(question).to_contain_text("Retry 110 jobs?")
        expect(question).to_contain_text("tag again")
        question.get_by_role("button", name="Go back").click()
        assert not retried(web, "again")
        page.get_by_role("button", name="Retry", exact=True).click()
        question.get_by_role("button", name="Retry 110 jobs").click()
        expect(page.locator(".toast")).to_contain_text("Retried 110 jobs.")
    assert retried(web, "again") == jobs


def retried(web: httpx.Client, tag: str) -> set[str]:
    found = web.get("/api/jobs", params={"tag": tag, "limit": 1000}).json()["jobs"]
    return {job["id"] for job in found if job["retriedAs"] is not None}


def test_jobs_are_selected_by_keyboard_and_canceled(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    held = {"tags": ["some"], "hold": True}
    oldest_first = [enqueue(web, "add", held, a=n)["id"] for n in range(5)]
    done = wait_for(web, enqueue(web, "add", {"tags": ["some"]}, a=1)["id"], "succeeded")["id"]
    jobs = [done, *reversed(oldest_first)]
    with open_page(browser, served.url, "jobs?tag=some") as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(6)
        for key in ("j", "x", "j", "j", "Shift+X"):
            page.keyboard.press(key)
        expect(page.locator(".jobs-bar")).to_contain_text("3 selected")
        page.get_by_role("button", name="Cancel", exact=True).click()
        question = page.get_by_role("dialog")
        expect(question).to_contain_text("Cancel 2 jobs?")
        expect(question).to_contain_text("1 job is skipped (action not applicable).")
        question.get_by_role("button", name="Cancel 2 jobs").click()
        expect(page.locator(".toast")).to_contain_text("Canceled 2 jobs.")
        for job in jobs[1:3]:
            expect(row(page, job)).to_contain_text("canceled")
    states = {job: web.get(f"/api/jobs/{job}").json()["state"] for job in jobs}
    assert list(states.values()) == ["succeeded", *["canceled"] * 2, *["created"] * 3]


@pytest.mark.slow
def test_refused_jobs_are_reported(browser: Any, served: LiveServer, web: httpx.Client) -> None:
    [failed_job] = failed(web, 1, tags=["refused"])
    with open_page(browser, served.url, "jobs?tag=refused") as dashboard:
        page = dashboard.page
        row(page, failed_job).get_by_role("checkbox").check()
        page.get_by_role("button", name="Resume", exact=True).click()
        page.get_by_role("button", name="Resume 1 job").click()
        toast = page.locator(".toast")
        expect(toast).to_contain_text("Resumed 0 jobs. 1 refused:")
        expect(toast).to_contain_text("no completed step")


@pytest.mark.slow
def test_keyboard_shortcuts_move_select_and_open_jobs(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    jobs = [enqueue(web, "add", {"tags": ["walk"], "hold": True}, a=n)["id"] for n in range(3)]
    jobs.reverse()
    with open_page(browser, served.url, "jobs?tag=walk") as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(3)
        expect(page.locator("tr.job .open[tabindex='0']")).to_have_count(1)
        for key, at in (("j", 0), ("j", 1), ("ArrowDown", 2), ("j", 2), ("k", 1), ("ArrowUp", 0)):
            page.keyboard.press(key)
            expect(page.locator(f"#job-{jobs[at]}")).to_be_focused()
            expect(page.locator("tr.job .open[tabindex='0']")).to_have_id(f"job-{jobs[at]}")
        page.keyboard.press("x")
        expect(page.locator(".jobs-bar")).to_contain_text("1 selected")
        page.keyboard.press("Escape")
        expect(page.locator(".jobs-bar")).not_to_contain_text("selected")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("select range")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("/")
        page.keyboard.type("j")  # typed into the field
        page.keyboard.press("Escape")
        expect(page.get_by_label("Search by task")).not_to_be_focused()
        page.goto(f"{served.url}/jobs?tag=walk")
        expect(rows(page)).to_have_count(3)
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{served.url}/jobs/{jobs[0]}")


@pytest.mark.slow
def test_viewers_have_no_actions_and_are_refused(browser: Any, tmp_path: Path) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make(tmp_path)) as secured:
        roles = (Role.ADMIN, Role.VIEWER, Role.PRODUCER)
        admin, viewer, producer = run_in_thread(lambda: [secured.key(role) for role in roles])
        with secured.client(admin) as web:
            job = enqueue(web, "add", a=1)["id"]
        with open_page(browser, secured.url, "jobs", key=viewer) as dashboard:
            page = dashboard.page
            expect(row(page, job)).to_be_visible()
            expect(page.get_by_role("checkbox")).to_have_count(0)
            expect(page.get_by_role("link", name="Enqueue")).to_have_count(0)
            page.keyboard.press("j")
            page.keyboard.press("x")
            expect(page.locator(".jobs-bar")).not_to_contain_text("selected")
            body = {"action": "cancel", "filter": {"queue": ["default"]}}
            answer = page.request.post(
                f"{secured.url}/api/jobs/actions", data=body, headers={"Origin": secured.url}
            )
            assert answer.status == 403
            sign_in(dashboard, producer)
            dashboard.go("jobs")
            page.get_by_label("Select this page").check()
            expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
            expect(page.get_by_role("button", name="Delete", exact=True)).to_have_count(0)


def test_the_job_list_on_a_phone_in_the_dark_theme(
    browser: Any, served: LiveServer, web: httpx.Client
) -> None:
    long = {"tags": ["phone", "a tag that is rather long, and goes on"], "owner": "o" * 60}
    [failed_job] = failed(web, 1, **long)
    small: dict[str, Any] = {"viewport": PHONE, "color_scheme": "dark"}
    with open_page(browser, served.url, "jobs?tag=phone", **small) as dashboard:
        page = dashboard.page
        for text in ("send", "failed", "ConnectionError", "mail"):
            expect(row(page, failed_job).get_by_text(text, exact=True)).to_be_visible()
        assert not dashboard.scrolls_horizontally
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert sum(int(part) for part in re.findall(r"\d+", background)) < 120
        page.get_by_role("button", name="More filters").click()
        expect(page.get_by_label("Tag", exact=True)).to_have_value("phone")
        row(page, failed_job).get_by_role("checkbox").check()
        expect(page.get_by_role("button", name="Retry", exact=True)).to_be_visible()


@pytest.mark.slow
def test_job_data_never_becomes_markup(browser: Any, served: LiveServer, web: httpx.Client) -> None:
    hidden = {
        "tags": ["xss", *HOSTILE_TEXTS],
        "owner": HOSTILE_TEXTS[0],
        "team": HOSTILE_TEXTS[2],
        "queue": HOSTILE_TEXTS[1],
    }
    job = enqueue(web, "add", {**hidden, "hold": True}, a=1)["id"]
    failing = [enqueue(web, "send", {"tags": ["xss"]}, to=text)["id"] for text in HOSTILE_TEXTS]
    for job_id in failing:
        wait_for(web, job_id, "failed")
    wide: dict[str, Any] = {"viewport": {"width": 1600, "height": 900}}
    with open_page(browser, served.url, "jobs?tag=xss", **wide) as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(1 + len(HOSTILE_TEXTS))
        for text in HOSTILE_TEXTS:
            expect(row(page, job).get_by_text(text, exact=True).first).to_be_attached()
        for text in HOSTILE_TEXTS:
            row(page, job).locator(".of-tags").get_by_text(text, exact=True).click(force=True)
            page.go_back()
            expect(rows(page)).to_have_count(1 + len(HOSTILE_TEXTS))
        for name in ("queue", "owner", "error", "text"):
            query = httpx.QueryParams({name: HOSTILE_TEXTS[0], "tag": HOSTILE_TEXTS[1]})
            page.goto(f"{served.url}/jobs?{query}")
            expect(page.get_by_role("toolbar")).to_be_visible()
            expect(page.locator("table, .empty")).to_be_visible()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("typeof hacked") == "undefined"


def test_live_updates_cause_no_layout_shift(
    browser: Any, served: LiveServer, web: httpx.Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tags = {"tags": ["still"]}
    jobs = [enqueue(web, "paint", tags, gate=str(gate))["id"] for _ in range(3)]
    held = [enqueue(web, "add", {**tags, "hold": True}, a=n)["id"] for n in range(20)]
    with open_page(browser, served.url, "jobs?tag=still") as dashboard:
        page = dashboard.page
        expect(rows(page)).to_have_count(23)
        expect(row(page, jobs[0])).to_contain_text("40 %")
        for number, job in enumerate(held):  # typical changes
            web.post(f"/api/jobs/{job}/{'cancel' if number % 2 else 'submit'}")
            enqueue(web, "send", {**tags, "owner": "another owner"}, to="x")
            ended = "canceled" if number % 2 else "succeeded"
            expect(row(page, job)).to_contain_text(ended)
        gate.touch()
        for job in jobs:
            expect(row(page, job)).to_contain_text("succeeded")
        expect(page.get_by_role("button", name="Show 20 new jobs")).to_be_visible()
        assert dashboard.shifts == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [10_500, 100_000])
def test_the_first_page_loads_among_many_jobs(browser: Any, tmp_path: Path, count: int) -> None:
    """Prints the times; the limits are generous, for slow machines."""
    with run_server(tmp_path, app=make(tmp_path)) as served:
        enqueue_many(served.app, count)
        with open_page(browser, served.url, "jobs") as dashboard:
            page = dashboard.page
            expect(rows(page)).to_have_count(50)
            seen = page.evaluate("performance.now()")
            paint = page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            )
            expect(page.locator(".jobs-bar")).to_contain_text("more than 10,000 jobs")
            assert dashboard.shifts == []
    summary = f"{count:,} jobs: first paint {paint:.0f} ms, first rows before {seen:.0f} ms"
    print(summary)  # noqa: T201 - the purpose of the test
    assert paint < 60_000
    assert seen < 60_000
