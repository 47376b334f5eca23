"""Pages other than jobs: content, actions, accessibility, layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from tests.browser.page_helpers import PHONE, expect, open_page, run_in_thread
from tests.server.conftest import LiveServer, enqueue, make_app, run_server, until, wait_for

from windlass import Windlass
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.task import Task

scanner = pytest.importorskip(
    "axe_playwright_python.sync_playwright",
    reason="there is no axe: pip install axe-playwright-python",
)
PAGES = (
    "", "jobs", "failures", "flows", "schedules", "workers", "enqueue", "enqueue?task=report",
    "audit", "keys",
)  # fmt: skip
IMPACTS = {"critical", "serious"}
VIOLATIONS = {"resultTypes": ["violations"]}  # limits the other results to one element per rule
CONTRAST = {**VIOLATIONS, "runOnly": {"type": "rule", "values": ["color-contrast"]}}


class Size(BaseModel):
    width: int = Field(ge=16, description="pixels")


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="report")
    async def report(
        title: str,
        pages: int = 10,
        kind: Literal["pdf", "html"] = "pdf",
        size: Size | None = None,
        extra: dict[str, int] | None = None,
    ) -> str:
        """Build a report."""
        return f"{title}: {pages} pages of {kind}, {size and size.width}, {extra}"

    @app.task(name="tick")
    async def tick() -> str:
        return "tock"

    app.schedule("*/5 * * * *", name="every five", tz="UTC")(tick)
    return app


def add_flow(served: LiveServer) -> str:
    def run() -> str:
        flow = small_flow(served).enqueue()
        flow.wait(20)
        return str(flow.id)

    return run_in_thread(run)


def small_flow(served: LiveServer) -> Any:
    spec = served.app.tasks.get("add")
    assert spec is not None
    task: Task[..., int] = Task(served.app, spec)
    flow = served.app.flow()
    first = flow.add(task, a=1)
    flow.add(task, a=first.result)
    return flow


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with succeeded and failed jobs and a schedule."""
    place = tmp_path_factory.mktemp("pages")
    with run_server(place, worker=True, app=make(place)) as served, served.client() as web:
        for number in range(3):
            wait_for(web, enqueue(web, "add", a=number)["id"], "succeeded")
        wait_for(web, enqueue(web, "broken", why="the pump is dry")["id"], "failed")
        yield served


def visit(dashboard: Any, path: str) -> None:
    dashboard.go(path)
    wait_until_rendered(dashboard)


def wait_until_rendered(dashboard: Any) -> None:
    expect(dashboard.page.locator("main h1, main .empty h2").first).to_be_visible()
    expect(dashboard.page.locator(".skeleton")).to_have_count(0)


def pages_of(served: LiveServer) -> list[str]:
    with served.client() as web:
        job = web.get("/api/jobs", params={"state": "failed"}).json()["jobs"][0]["id"]
    return [*PAGES, f"flows/{add_flow(served)}", f"jobs/{job}"]


def violations(page: Any, rules: dict[str, Any] = VIOLATIONS) -> dict[str, list[str]]:
    return {
        violation["id"]: [node["html"][:200] for node in violation["nodes"]]
        for violation in scanner.Axe().run(page, options=rules).response["violations"]
        if violation["impact"] in IMPACTS
    }


@pytest.mark.parametrize(
    "every", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_each_page_has_no_errors_layout_shifts_or_accessibility_violations(
    browser: Any, shown: LiveServer, every: int
) -> None:
    """An axe scan finds no serious violation in light and dark."""
    with open_page(browser, shown.url, reduced_motion="reduce") as dashboard:
        for path in pages_of(shown)[::-every]:  # the job page is last, and the largest
            visit(dashboard, path)
            assert violations(dashboard.page) == {}, path
            dashboard.page.emulate_media(color_scheme="dark")
            # The other rules do not depend on the theme.
            assert violations(dashboard.page, CONTRAST) == {}, path
            dashboard.page.emulate_media(color_scheme="light")
            assert dashboard.layout_shift < 0.01, path
            dashboard.check()


@pytest.mark.slow
def test_all_pages_fit_a_phone_and_the_menu_opens(browser: Any, shown: LiveServer) -> None:
    with open_page(browser, shown.url, viewport=PHONE) as dashboard:
        for path in pages_of(shown):
            dashboard.navigate(path)
            wait_until_rendered(dashboard)
            assert not dashboard.scrolls_horizontally, path
        dashboard.button("Menu").click()
        dashboard.page.get_by_role("link", name="Workers", exact=True).click()
        expect(dashboard.heading("Workers")).to_be_visible()
        dashboard.navigate("jobs?state=failed")
        dashboard.button("Menu").click()
        # The link opens the same page without filters.
        dashboard.page.get_by_role("link", name="Jobs", exact=True).click()
        expect(dashboard.button("Menu")).to_have_attribute("aria-expanded", "false")


@pytest.mark.slow
def test_the_color_theme_follows_the_system_until_the_user_chooses(
    browser: Any, shown: LiveServer
) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with open_page(browser, shown.url, color_scheme="dark", own_profile=True) as dashboard:
        visit(dashboard, "workers")
        dark = dashboard.page.evaluate(background)
        dashboard.page.get_by_role("button", name=re.compile("Color theme: system")).click()
        light = dashboard.page.evaluate(background)
        assert light != dark
        visit(dashboard, "workers")  # it is remembered
        assert dashboard.page.evaluate(background) == light


def test_the_overview_shows_alerts_and_resumes_a_queue(browser: Any, shown: LiveServer) -> None:
    with open_page(browser, shown.url) as dashboard, shown.client() as web:
        row = dashboard.page.get_by_role("row", name=re.compile("default"))
        row.get_by_role("button", name="Pause default").click()
        expect(dashboard.heading("Pause default?")).to_be_visible()
        dashboard.page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
        expect(row.get_by_text("paused")).to_be_visible()
        job = enqueue(web, "add", a=1)["id"]
        dashboard.refresh("/api/queues")
        alert = dashboard.page.get_by_text("Queue default is paused (1 job waiting).")
        expect(alert).to_be_visible()
        dashboard.button("Resume").first.click()
        expect(alert).to_have_count(0)
        wait_for(web, job, "succeeded")
        web.post("/api/queues/it's/pause")
        enqueue(web, "add", {"queue": "lonely"}, a=1)
        dashboard.refresh("/api/queues")
        expect(
            dashboard.page.get_by_text("No worker consumes queue lonely (1 job waiting).")
        ).to_be_visible()
        expect(dashboard.page.locator(".chart")).to_have_count(3)
        expect(dashboard.page.get_by_role("link", name="broken")).to_be_visible()  # top failures


def test_the_enqueue_form_shows_each_error_at_its_field(browser: Any, shown: LiveServer) -> None:
    with open_page(browser, shown.url, "enqueue") as dashboard:
        page = dashboard.page
        page.get_by_label("Task").select_option("report")
        expect(page.get_by_text("Build a report.")).to_be_visible()
        page.get_by_label("title").fill("Pumps")
        page.get_by_role("textbox", name="pages").fill("ten")
        dashboard.button("Enqueue").click()
        expect(page.get_by_text("Enter a number.")).to_be_visible()
        page.get_by_role("textbox", name="pages").fill("12")
        page.get_by_label("kind").select_option(label="html")
        page.get_by_label("width").fill("3")
        page.get_by_label("extra").fill('{"a": 1}')
        dashboard.button("Enqueue").click()  # the server's error at the field
        expect(page.get_by_text(re.compile("greater than or equal to 16"))).to_be_visible()
        expect(page.get_by_label("width")).to_be_focused()
        page.get_by_label("width").fill("640")
        dashboard.button("Enqueue").click()
        page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}"))
        job = page.url.rpartition("/")[2]
        with shown.client() as web:
            done = wait_for(web, job, "succeeded")
        dashboard.ignore_console("422")
    assert done["result"] == "Pumps: 12 pages of html, 640, {'a': 1}"


def test_a_schedule_is_run_now_paused_and_resumed(browser: Any, shown: LiveServer) -> None:
    with open_page(browser, shown.url, "schedules") as dashboard, shown.client() as web:
        row = dashboard.page.get_by_role("row", name=re.compile("every five"))
        expect(row.get_by_role("time").or_(row.locator("time")).first).to_contain_text("in ")
        dashboard.button("Run every five now").click()
        link = dashboard.page.get_by_role("status").get_by_role("link")
        job = str(link.get_attribute("title"))
        assert wait_for(web, job, "succeeded")["result"] == "tock"
        dashboard.button("Pause every five").click()
        dashboard.page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
        dashboard.button("Resume every five").click()
        expect(dashboard.button("Pause every five")).to_be_visible()


def test_a_succeeded_flow_shows_its_graph_and_no_retry_button(
    browser: Any, shown: LiveServer
) -> None:
    flow = add_flow(shown)
    with open_page(browser, shown.url, "flows") as dashboard:
        dashboard.page.get_by_role("link", name=f"…{flow[-8:]}").click()
        expect(dashboard.page.get_by_text("2 jobs: 2 succeeded")).to_be_visible()
        expect(dashboard.page.locator("main svg a, main .graph a").first).to_be_visible()
        expect(dashboard.button("Retry")).to_have_count(0)  # nothing to retry


@pytest.mark.slow
def test_no_flow_is_missing_between_new_and_older_flows(browser: Any, shown: LiveServer) -> None:
    def begin(count: int) -> set[str]:
        return run_in_thread(lambda: {str(small_flow(shown).enqueue().id) for _ in range(count)})

    listed = "() => [...document.querySelectorAll('main td a[title]')].map((link) => link.title)"
    flows = begin(52)  # more than are listed at first
    with open_page(browser, shown.url, "flows") as dashboard:
        expect(dashboard.page.locator("main tbody tr")).to_have_count(50)
        dashboard.button("Older").click()
        until(lambda: flows <= set(dashboard.page.evaluate(listed)), "older flows are loaded")
        flows |= begin(3)
        until(lambda: flows <= set(dashboard.page.evaluate(listed)), "no flow is lost")


@pytest.mark.slow
def test_sign_in_shows_only_what_the_roles_allow(browser: Any, tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.KEYS)
    with run_server(tmp_path, config, app=make(tmp_path)) as served:
        admin = run_in_thread(lambda: served.key(Role.ADMIN))
        viewer = run_in_thread(lambda: served.key(Role.VIEWER))
        own = run_in_thread(lambda: served.key(Role.PRODUCER, owner="ann"))
        with open_page(browser, served.url, "schedules", own_profile=True) as dashboard:
            page = dashboard.page
            page.get_by_label("API key").fill("wl_unknown_key")
            dashboard.button("Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("invalid API key")
            page.get_by_label("API key").fill(viewer)
            dashboard.button("Sign in").click()
            expect(page.locator("h1")).to_have_text("Schedules")  # the requested page
            expect(page.get_by_role("link", name="API keys")).to_have_count(0)
            expect(dashboard.button("Run every five now")).to_have_count(0)
            for path in ("enqueue", "audit", "keys"):
                dashboard.navigate(path)
                expect(dashboard.heading("Access denied")).to_be_visible()
            dashboard.button("Sign out").click()
            expect(dashboard.heading("Sign in to Windlass")).to_be_visible()
            page.get_by_label("API key").fill(admin)
            dashboard.button("Sign in").click()
            page.get_by_role("link", name="API keys").click()
            expect(page.get_by_role("row")).to_have_count(4)
            dashboard.ignore_console("401")
        with open_page(browser, served.url, key=own) as dashboard:
            expect(dashboard.page.locator("h1")).to_have_text("Jobs")  # only its own jobs
            expect(dashboard.page.get_by_role("link", name="Workers")).to_have_count(0)


def test_a_key_is_created_shown_once_revoked_and_audited(browser: Any, tmp_path: Path) -> None:
    with run_server(
        tmp_path, ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.1), app=make(tmp_path)
    ) as served:
        admin = run_in_thread(lambda: served.key(Role.ADMIN))
        with open_page(browser, served.url, "keys", key=admin) as dashboard:
            page = dashboard.page
            dashboard.button("New key").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Name").fill("ci")
            dialog.get_by_label("producer").check()
            dialog.get_by_role("button", name="Create").click()
            token = dialog.locator("pre").inner_text()
            dialog.get_by_role("button", name="Done").click()
            with served.client(token) as web:
                assert web.get("/api/jobs").status_code == 200
            dashboard.button("Revoke ci").click()
            dialog.get_by_role("button", name="Revoke").click()
            expect(page.get_by_role("row", name=re.compile("ci.*revoked"))).to_be_visible()
            page.get_by_role("link", name="Audit").click()
            expect(page.get_by_role("row", name=re.compile("create key"))).to_be_visible()
            assert token not in page.content()


def test_an_unknown_url_shows_page_not_found(browser: Any, shown: LiveServer) -> None:
    with open_page(browser, shown.url, "no/such/page") as dashboard:
        expect(dashboard.heading("Page not found")).to_be_visible()
        dashboard.page.get_by_role("link", name="All jobs").click()
        expect(dashboard.heading("Jobs")).to_be_visible()
        assert all("404" in entry for entry in dashboard.console)  # logged by the browser
        dashboard.console.clear()


@pytest.mark.slow
def test_the_dashboard_is_mounted_in_another_application(browser: Any, tmp_path: Path) -> None:
    def around(api: FastAPI) -> FastAPI:
        outer = FastAPI()
        outer.state.server_context = api.state.server_context
        outer.mount("/tools/windlass", api)
        return outer

    with (
        run_server(tmp_path, worker=True, app=make(tmp_path), around=around) as served,
        open_page(browser, f"{served.url}/tools/windlass", "workers") as dashboard,
    ):
        expect(dashboard.page.get_by_text("healthy")).to_be_visible()
        dashboard.page.get_by_role("link", name="Schedules").click()
        expect(dashboard.page.get_by_text("every five")).to_be_visible()
        assert dashboard.page.url == f"{served.url}/tools/windlass/schedules"
        dashboard.page.go_back()
        expect(dashboard.heading("Workers")).to_be_visible()
