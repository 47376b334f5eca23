"""Failures page: groups, traceback, retry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.browser.jobs_page_helpers import make, serve_with_worker
from tests.browser.page_helpers import PHONE, expect, open_page, run_in_thread
from tests.server.conftest import LiveServer, enqueue, run_server, wait_for

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig

MARKUP = "<img src=x onerror=hacked()>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serve_with_worker(tmp_path_factory.mktemp("failures")) as server:
        yield server


def fail_jobs(web: httpx.Client, task: str, count: int, **arguments: Any) -> list[str]:
    jobs = [enqueue(web, task, **arguments)["id"] for _ in range(count)]
    for job in jobs:
        wait_for(web, job, "failed")
    return jobs


def group(page: Any, text: str) -> Any:
    return page.locator(".failure", has_text=text)


@pytest.mark.slow
def test_failures_are_grouped_and_the_newest_traceback_is_shown_in_place(
    browser: Any, served: LiveServer
) -> None:
    with served.client() as web:
        failed = fail_jobs(web, "send", 3, to="north")
        [other] = fail_jobs(web, "broken", 1, why=MARKUP)
        with open_page(browser, served.url, "failures") as dashboard:
            page = dashboard.page
            first, second = (page.locator(".failure").nth(at) for at in range(2))
            expect(first).to_contain_text("send")
            expect(first.locator(".size")).to_have_text("3")
            expect(first).to_contain_text("north does not answer")
            expect(second).to_contain_text(MARKUP)
            second.get_by_role("button", name="Traceback of").click()
            expect(second.locator("pre")).to_contain_text("Traceback (most recent call last)")
            expect(second.locator("pre")).to_contain_text(f"ValueError: {MARKUP}")
            expect(second.get_by_role("link", name=other[-8:]).first).to_be_visible()
            second.get_by_role("button", name="Traceback of").click()
            expect(second.locator("pre")).to_have_count(0)
            fail_jobs(web, "broken", 4, why=MARKUP)  # more than the first group; it stays below
            expect(second.locator(".size")).to_have_text("5")
            page.get_by_role("button", name="Sort by count").click()
            expect(first).to_contain_text(MARKUP)
            page.get_by_role("link", name="Last hour").click()
            expect(page).to_have_url(re.compile(r"\?since=hour$"))
            group(page, "send").get_by_role("link", name="Jobs of").click()
            rows = page.locator("tr.job:not(.placeholder)")
            expect(rows).to_have_count(3)
            ids = rows.locator(".open").evaluate_all("found => found.map(link => link.id)")
            assert set(ids) == {f"job-{job}" for job in failed}
            assert page.evaluate("typeof hacked") == "undefined"


def test_a_failure_group_is_retried_after_a_confirmation_with_its_count(
    browser: Any, served: LiveServer
) -> None:
    with served.client() as web:
        east, west = fail_jobs(web, "send", 4, to="east"), fail_jobs(web, "send", 2, to="west")
        with open_page(browser, served.url, "failures") as dashboard:
            page = dashboard.page
            group(page, "east").get_by_role("button", name="Retry all").click()
            question = page.get_by_role("dialog")
            expect(question).to_contain_text("Retry 4 jobs?")
            question.get_by_role("button", name="Retry 4 jobs").click()
            expect(page.locator(".toast")).to_contain_text("Retried 4 jobs.")
        again = {job: web.get(f"/api/jobs/{job}").json()["retriedAs"] for job in (*east, *west)}
        assert all(again[job] is not None for job in east)
        assert all(again[job] is None for job in west)
        for job in east:
            wait_for(web, again[job], "failed")


@pytest.mark.slow
def test_no_failures_message_and_viewers_cannot_retry(browser: Any, tmp_path: Path) -> None:
    with run_server(
        tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make(tmp_path), worker=True
    ) as secured:
        admin, viewer = run_in_thread(
            lambda: [secured.key(role) for role in (Role.ADMIN, Role.VIEWER)]
        )
        with open_page(browser, secured.url, "failures?since=week", key=viewer) as dashboard:
            expect(dashboard.page.get_by_text("No failures in the last week")).to_be_visible()
            with secured.client(admin) as web:
                fail_jobs(web, "broken", 1, why="x")
            page = dashboard.page
            page.set_viewport_size(PHONE)
            page.emulate_media(color_scheme="dark")
            dashboard.navigate("failures")
            expect(group(page, "broken").get_by_role("button", name="Traceback of")).to_be_visible()
            expect(page.get_by_role("button", name="Retry all")).to_have_count(0)
            assert not dashboard.scrolls_horizontally
