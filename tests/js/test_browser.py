"""The JavaScript client in a real browser, with broken connections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.js.proxy import Proxy
from tests.js.sample_tasks import log_of, make
from tests.server.conftest import LiveServer, enqueue, exists, run_server, until, wait_for
from tests.server.stream_faults import FaultyStreams, falsify_progress, reorder_and_repeat

from windlass.server.javascript_client import folder

playwright = pytest.importorskip(
    "playwright.sync_api", reason="there is no playwright: pip install playwright"
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; on Debian: apt-get install chromium"
)
LISTENERS = 10


class StrictPolicyFiles(StaticFiles):
    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers["Content-Security-Policy"] = "default-src 'self'; img-src data:"
        return response


def around(api: FastAPI) -> FastAPI:
    """Mount the server and a page with a strict content security policy."""
    outer = FastAPI()
    outer.state.server_context = api.state.server_context

    outer.mount("/page", StrictPolicyFiles(directory=Path(__file__).parent / "page", html=True))
    outer.mount("/js", StaticFiles(directory=folder()))
    outer.mount("/disorder", FaultyStreams(api, reorder_and_repeat))
    outer.mount("/lie", FaultyStreams(api, falsify_progress))
    outer.mount("/", api)
    return outer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    place = tmp_path_factory.mktemp("browser")
    with run_server(place, worker=True, app=make(place), around=around) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@dataclass
class Page:
    """A page that follows a job, and its console messages."""

    page: Any
    console: list[str] = field(default_factory=list)

    def until(self, expression: str) -> None:
        """Poll from here: waiting inside the page would need `eval` there."""
        until(lambda: self.page.evaluate(expression), expression)

    def get(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    @property
    def ended(self) -> str:
        return "page.listeners.every(listener => listener.end !== null)"


@contextmanager
def wait_for_file(browser: Any, url: str, job: str) -> Iterator[Page]:
    context = browser.new_context()
    opened_page = Page(context.new_page())
    opened_page.page.on(
        "console", lambda entry: opened_page.console.append(f"{entry.type}: {entry.text}")
    )
    opened_page.page.on("pageerror", lambda error: opened_page.console.append(f"uncaught: {error}"))
    opened_page.page.goto(f"{url}/page/?job={job}")
    try:
        yield opened_page
    finally:
        context.close()


def test_ten_listeners_on_one_connection_resume_after_a_break_without_duplicates(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web, Proxy(served.url) as proxy:
        job = enqueue(web, "video", gate=str(gate))["id"]
        with wait_for_file(browser, proxy.url, job) as page:
            page.until("page.shown.includes(40)")
            page.get(f"while (page.listeners.length < {LISTENERS}) page.listen()")  # late listeners
            page.until("page.listeners.every(listener => listener.percents.includes(40))")
            assert served.context.hub.open_streams == 1
            proxy.open = False
            proxy.cut()
            page.until("page.listeners.every(listener => listener.connections.at(-1) === false)")
            gate.touch()
            wait_for(web, job, "succeeded")  # while disconnected
            assert page.get("document.querySelector('progress').value") == 40
            proxy.open = True
            page.until(page.ended)
            listeners, shown = page.get("page.listeners"), page.get("page.shown")
            assert page.get("document.querySelector('output').textContent") == "succeeded"
            assert page.get("page.logged") == []
        log = log_of(web, job)
    assert len(listeners) == LISTENERS
    for listener in listeners:
        assert listener["events"] == log  # complete, in order, no duplicates
        assert (listener["end"], listener["error"]) == ("job-completed", None)
        assert listener["percents"] == sorted(listener["percents"])
    assert shown == sorted(shown)
    assert shown[-1] == 100
    # The browser logs each broken connection; there are no other messages.
    assert all("net::ERR" in line for line in page.console), page.console


def test_a_job_canceled_at_forty_percent_is_shown_as_canceled_without_its_files(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    with served.client() as web:
        job = enqueue(web, "video", gate=str(tmp_path / "never"))["id"]
        with wait_for_file(browser, served.url, job) as page:
            page.until("document.querySelector('progress').value === 40")
            roots = [str(served.app._workspaces.data / kind / job) for kind in ("temp", "proxy")]
            assert all(exists(root) for root in roots)
            answer = page.get("page.client.cancel(page.job, {reason: 'enough'})")
            assert (answer["status"], answer["cleanupScheduled"]) == ("requested", True)
            page.until(page.ended)
            assert not any(exists(root) for root in roots)  # cleaned before the event
            final = page.get("page.client.get(page.job)")
            listeners = page.get("page.listeners")
            assert page.get("document.querySelector('output').textContent") == "canceled"
            assert page.get("document.querySelector('progress').value") == 40
        log = log_of(web, job)
    assert final["canceledAt"] == final["endedAt"] is not None
    assert (final["state"], final["percent"], final["cancelReason"]) == ("canceled", 40, "enough")
    for listener in listeners:
        assert listener["events"] == log
        assert listener["states"][-1] == "canceled"
        assert listener["end"] == "job-cancelled"
    assert page.console == []


@pytest.mark.slow
def test_progress_never_decreases_when_events_arrive_out_of_order(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with served.client() as web:
        job = enqueue(web, "video", gate=str(gate))["id"]
        wait_for(web, job, "succeeded")
        with wait_for_file(browser, served.url, f"{job}&api=/disorder") as page:
            page.until(page.ended)
            listeners, shown, logged = (
                page.get(f"page.{name}") for name in ("listeners", "shown", "logged")
            )
            assert page.get("document.querySelector('progress').value") == 100
        log = log_of(web, job)
    for listener in listeners:
        assert listener["events"] == log
        assert listener["percents"] == sorted(listener["percents"])
    assert shown == sorted(shown)
    assert shown[-1] == 100
    assert logged
    for line in logged:  # early events; duplicates are not logged
        found = re.search(r"event (\d+) of job \S+ is out of order, after (\d+)", line)
        assert found is not None, line
        assert int(found[1]) > int(found[2]) + 1
    assert page.console == []


def test_lower_progress_from_the_server_is_ignored(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with served.client() as web:
        job = enqueue(web, "video", gate=str(gate))["id"]
        with wait_for_file(browser, served.url, f"{job}&api=/lie") as page:
            page.until(page.ended)
            shown, logged = page.get("page.shown"), page.get("page.logged")
    assert shown == sorted(shown)
    assert (15 in shown, 60 in shown, shown[-1]) == (False, False, 100)
    assert {re.sub(r"\(.*\)", "…", line) for line in logged} == {
        "windlass: ignored progress of 15 % …: it was at 40 %"
    }
    assert page.console == []


@pytest.mark.slow
def test_leaving_a_page_closes_its_stream(browser: Any, served: LiveServer, tmp_path: Path) -> None:
    with served.client() as web:
        job = enqueue(web, "video", gate=str(tmp_path / "never"))["id"]
        with wait_for_file(browser, served.url, job) as page:
            page.until("page.shown.includes(40)")
            assert served.context.hub.open_streams == 1
            page.page.goto("about:blank")
            until(lambda: served.context.hub.open_streams == 0, "the stream is closed")
        web.post(f"/api/jobs/{job}/cancel")
        wait_for(web, job, "canceled")
    assert page.console == []
