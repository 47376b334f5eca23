"""The pages around jobs: what they tell, what they let one do, how they look to everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from tests.browser.page_helpers import PHONE, aside, expect, looking
from tests.server.conftest import Served, enqueue, make_app, serving, until, wait_for

from windlass import Windlass
from windlass.server.auth.api_keys import Role
from windlass.server.config import Door, ServerConfig
from windlass.task import Task

scanner = pytest.importorskip(
    "axe_playwright_python.sync_playwright",
    reason="there is no axe: pip install axe-playwright-python",
)
PAGES = (
    "", "jobs", "failures", "flows", "schedules", "workers", "enqueue", "enqueue?task=report",
    "audit", "keys",
)  # fmt: skip
HURTS = {"critical", "serious"}
VIOLATIONS = {"resultTypes": ["violations"]}  # of all else, one element is told of each rule
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


def add_flow(served: Served) -> str:
    def run() -> str:
        begun = small_flow(served).enqueue()
        begun.wait(20)
        return str(begun.id)

    return aside(run)


def small_flow(served: Served) -> Any:
    spec = served.app.tasks.get("add")
    assert spec is not None
    task: Task[..., int] = Task(served.app, spec)
    flow = served.app.flow()
    first = flow.add(task, a=1)
    flow.add(task, a=first.result)
    return flow


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Something of everything: jobs that ended well and badly, a flow, a schedule."""
    place = tmp_path_factory.mktemp("pages")
    with serving(place, worker=True, app=make(place)) as served, served.client() as web:
        for number in range(3):
            wait_for(web, enqueue(web, "add", a=number)["id"], "succeeded")
        wait_for(web, enqueue(web, "broken", why="the pump is dry")["id"], "failed")
        yield served


def visit(look: Any, path: str) -> None:
    look.go(path)
    settled(look)


def settled(look: Any) -> None:
    expect(look.page.locator("main h1, main .empty h2").first).to_be_visible()
    expect(look.page.locator(".skeleton")).to_have_count(0)


def pages_of(served: Served) -> list[str]:
    with served.client() as web:
        job = web.get("/api/jobs", params={"state": "failed"}).json()["jobs"][0]["id"]
    return [*PAGES, f"flows/{add_flow(served)}", f"jobs/{job}"]


def hurting(page: Any, rules: dict[str, Any] = VIOLATIONS) -> dict[str, list[str]]:
    return {
        one["id"]: [node["html"][:200] for node in one["nodes"]]
        for one in scanner.Axe().run(page, options=rules).response["violations"]
        if one["impact"] in HURTS
    }


@pytest.mark.parametrize(
    "every", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
def test_each_page_comes_without_complaint_moves_by_nobody_and_is_for_everybody(
    browser: Any, shown: Served, every: int
) -> None:
    """For who sees or hears it otherwise, too: in both colours a scan finds nothing that hurts."""
    with looking(browser, shown.url, reduced_motion="reduce") as look:
        for path in pages_of(shown)[::-every]:  # the page of a job is the last, and the largest
            visit(look, path)
            assert hurting(look.page) == {}, path
            look.page.emulate_media(color_scheme="dark")
            assert hurting(look.page, CONTRAST) == {}, path  # nothing else depends on the colours
            look.page.emulate_media(color_scheme="light")
            assert look.shifted < 0.01, path
            look.check()


@pytest.mark.slow
def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_menu_opens(
    browser: Any, shown: Served
) -> None:
    with looking(browser, shown.url, viewport=PHONE) as look:
        for path in pages_of(shown):
            look.move(path)
            settled(look)
            assert not look.too_wide, path
        look.button("Menu").click()
        look.page.get_by_role("link", name="Workers", exact=True).click()
        expect(look.heading("Workers")).to_be_visible()
        look.move("jobs?state=failed")
        look.button("Menu").click()
        look.page.get_by_role("link", name="Jobs", exact=True).click()  # the same page, but all
        expect(look.button("Menu")).to_have_attribute("aria-expanded", "false")


@pytest.mark.slow
def test_colours_are_the_systems_until_somebody_chooses(browser: Any, shown: Served) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with looking(browser, shown.url, color_scheme="dark", apart=True) as look:
        visit(look, "workers")
        dark = look.page.evaluate(ground)
        look.page.get_by_role("button", name=re.compile("Colours: system")).click()
        light = look.page.evaluate(ground)
        assert light != dark
        visit(look, "workers")  # it is remembered
        assert look.page.evaluate(ground) == light


def test_the_overview_says_what_needs_somebody_and_lets_them_mend_it(
    browser: Any, shown: Served
) -> None:
    with looking(browser, shown.url) as look, shown.client() as web:
        row = look.page.get_by_role("row", name=re.compile("default"))
        row.get_by_role("button", name="Pause default").click()
        expect(look.heading("Pause default?")).to_be_visible()
        look.page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
        expect(row.get_by_text("paused")).to_be_visible()
        job = enqueue(web, "add", a=1)["id"]
        look.refresh("/api/queues")
        concern = look.page.get_by_text("default is paused, and 1 job waits in it.")
        expect(concern).to_be_visible()
        look.button("Resume").first.click()
        expect(concern).to_have_count(0)
        wait_for(web, job, "succeeded")
        web.post("/api/queues/nobody's/pause")
        enqueue(web, "add", {"queue": "lonely"}, a=1)
        look.refresh("/api/queues")
        expect(
            look.page.get_by_text("No worker takes the queue lonely, and 1 job waits in it.")
        ).to_be_visible()
        expect(look.page.locator(".chart")).to_have_count(3)
        expect(look.page.get_by_role("link", name="broken")).to_be_visible()  # failed most


def test_a_job_is_enqueued_by_a_form_that_tells_what_is_wrong_beside_it(
    browser: Any, shown: Served
) -> None:
    with looking(browser, shown.url, "enqueue") as look:
        page = look.page
        page.get_by_label("Task").select_option("report")
        expect(page.get_by_text("Build a report.")).to_be_visible()
        page.get_by_label("title").fill("Pumps")
        page.get_by_role("textbox", name="pages").fill("ten")
        look.button("Enqueue").click()
        expect(page.get_by_text("It is no number.")).to_be_visible()
        page.get_by_role("textbox", name="pages").fill("12")
        page.get_by_label("kind").select_option(label="html")
        page.get_by_label("width").fill("3")
        page.get_by_label("extra").fill('{"a": 1}')
        look.button("Enqueue").click()  # the server's own words, at the field
        expect(page.get_by_text(re.compile("greater than or equal to 16"))).to_be_visible()
        expect(page.get_by_label("width")).to_be_focused()
        page.get_by_label("width").fill("640")
        look.button("Enqueue").click()
        page.wait_for_url(re.compile("/jobs/[0-9a-f-]{36}"))
        job = page.url.rpartition("/")[2]
        with shown.client() as web:
            done = wait_for(web, job, "succeeded")
        look.said = [one for one in look.said if "422" not in one]  # the browser's own
    assert done["result"] == "Pumps: 12 pages of html, 640, {'a': 1}"


def test_a_schedule_is_run_now_paused_and_resumed(browser: Any, shown: Served) -> None:
    with looking(browser, shown.url, "schedules") as look, shown.client() as web:
        row = look.page.get_by_role("row", name=re.compile("every five"))
        expect(row.get_by_role("time").or_(row.locator("time")).first).to_contain_text("in ")
        look.button("Run every five now").click()
        link = look.page.get_by_role("status").get_by_role("link")
        job = str(link.get_attribute("title"))
        assert wait_for(web, job, "succeeded")["result"] == "tock"
        look.button("Pause every five").click()
        look.page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
        look.button("Resume every five").click()
        expect(look.button("Pause every five")).to_be_visible()


def test_a_flow_is_drawn_and_acted_on_as_a_whole(browser: Any, shown: Served) -> None:
    flow = add_flow(shown)
    with looking(browser, shown.url, "flows") as look:
        look.page.get_by_role("link", name=f"…{flow[-8:]}").click()
        expect(look.page.get_by_text("2 jobs: 2 succeeded")).to_be_visible()
        expect(look.page.locator("main svg a, main .graph a").first).to_be_visible()
        expect(look.button("Retry")).to_have_count(0)  # there is nothing to do again


@pytest.mark.slow
def test_no_flow_gets_lost_between_new_ones_and_older_ones(browser: Any, shown: Served) -> None:
    def begin(count: int) -> set[str]:
        return aside(lambda: {str(small_flow(shown).enqueue().id) for _ in range(count)})

    listed = "() => [...document.querySelectorAll('main td a[title]')].map((one) => one.title)"
    flows = begin(52)  # more than are listed at first
    with looking(browser, shown.url, "flows") as look:
        expect(look.page.locator("main tbody tr")).to_have_count(50)
        look.button("Older").click()
        until(lambda: flows <= set(look.page.evaluate(listed)), "the older are there")
        flows |= begin(3)
        until(lambda: flows <= set(look.page.evaluate(listed)), "nothing is lost")


@pytest.mark.slow
def test_one_signs_in_with_a_key_and_is_offered_what_its_roles_allow(
    browser: Any, tmp_path: Path
) -> None:
    config = ServerConfig(door=Door.KEYS)
    with serving(tmp_path, config, app=make(tmp_path)) as served:
        admin = aside(lambda: served.key(Role.ADMIN))
        viewer = aside(lambda: served.key(Role.VIEWER))
        own = aside(lambda: served.key(Role.PRODUCER, owner="ann"))
        with looking(browser, served.url, "schedules", apart=True) as look:
            page = look.page
            page.get_by_label("API key").fill("wl_nobody_nothing")
            look.button("Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("there is no such key")
            page.get_by_label("API key").fill(viewer)
            look.button("Sign in").click()
            expect(page.locator("h1")).to_have_text("Schedules")  # where one wanted to go
            expect(page.get_by_role("link", name="API keys")).to_have_count(0)
            expect(look.button("Run every five now")).to_have_count(0)
            for path in ("enqueue", "audit", "keys"):
                look.move(path)
                expect(look.heading("This page is not for your key")).to_be_visible()
            look.button("Sign out").click()
            expect(look.heading("Sign in to Windlass")).to_be_visible()
            page.get_by_label("API key").fill(admin)
            look.button("Sign in").click()
            page.get_by_role("link", name="API keys").click()
            expect(page.get_by_role("row")).to_have_count(4)
            look.said = [one for one in look.said if "401" not in one]  # the browser's own
        with looking(browser, served.url, key=own) as look:
            expect(look.page.locator("h1")).to_have_text("Jobs")  # of others it is told nothing
            expect(look.page.get_by_role("link", name="Workers")).to_have_count(0)


def test_a_key_is_made_shown_once_and_revoked_and_the_audit_tells_of_it(
    browser: Any, tmp_path: Path
) -> None:
    with serving(tmp_path, ServerConfig(door=Door.KEYS, trust=0.1), app=make(tmp_path)) as served:
        admin = aside(lambda: served.key(Role.ADMIN))
        with looking(browser, served.url, "keys", key=admin) as look:
            page = look.page
            look.button("New key").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Name").fill("ci")
            dialog.get_by_label("producer").check()
            dialog.get_by_role("button", name="Make it").click()
            token = dialog.locator("pre").inner_text()
            dialog.get_by_role("button", name="I have it").click()
            with served.client(token) as web:
                assert web.get("/api/jobs").status_code == 200
            look.button("Revoke ci").click()
            dialog.get_by_role("button", name="Revoke").click()
            expect(page.get_by_role("row", name=re.compile("ci.*revoked"))).to_be_visible()
            page.get_by_role("link", name="Audit").click()
            expect(page.get_by_role("row", name=re.compile("create key"))).to_be_visible()
            assert token not in page.content()


def test_where_there_is_nothing_a_page_says_so(browser: Any, shown: Served) -> None:
    with looking(browser, shown.url, "no/such/page") as look:
        expect(look.heading("There is nothing at this address")).to_be_visible()
        look.page.get_by_role("link", name="All jobs").click()
        expect(look.heading("Jobs")).to_be_visible()
        assert all("404" in one for one in look.said)  # the browser's own
        look.said.clear()


@pytest.mark.slow
def test_the_dashboard_is_mounted_in_somebody_elses_application(
    browser: Any, tmp_path: Path
) -> None:
    def around(api: FastAPI) -> FastAPI:
        outer = FastAPI()
        outer.state.site = api.state.site
        outer.mount("/tools/windlass", api)
        return outer

    with (
        serving(tmp_path, worker=True, app=make(tmp_path), around=around) as served,
        looking(browser, f"{served.url}/tools/windlass", "workers") as look,
    ):
        expect(look.page.get_by_text("alive")).to_be_visible()
        look.page.get_by_role("link", name="Schedules").click()
        expect(look.page.get_by_text("every five")).to_be_visible()
        assert look.page.url == f"{served.url}/tools/windlass/schedules"
        look.page.go_back()
        expect(look.heading("Workers")).to_be_visible()
