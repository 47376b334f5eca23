"""All tabs of a browser share one stream."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.browser.shared_stream_helpers import RequestCounter, make, window
from tests.js.proxy import Proxy
from tests.js.sample_tasks import log_of
from tests.server.conftest import LiveServer, enqueue, run_server, until, wait_for

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig

TABS = pytest.mark.parametrize("tab_count", [3, pytest.param(10, marks=pytest.mark.slow)])
request_counter = RequestCounter()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    place = tmp_path_factory.mktemp("one-stream")
    config = ServerConfig(auth=AuthMode.LOCAL, list_poll_interval=0.05)
    with run_server(
        place, config, worker=True, app=make(place), around=request_counter.around
    ) as server:
        yield server


def event_numbers(web: Any, job: str) -> list[int]:
    return [int(event["id"].rpartition("-")[2]) for event in log_of(web, job)]


def wait_for_streams(served: LiveServer, number: int) -> None:
    """Wait for the number: a changed subscription opens a new stream before the old one closes."""
    until(lambda: served.context.hub.open_streams == number, f"there are {number} streams")


@TABS
def test_tabs_share_one_stream_and_each_receives_all_events(
    browser: Any, served: LiveServer, tmp_path: Path, tab_count: int
) -> None:
    gates = [tmp_path / "one", tmp_path / "two"]
    with served.client() as web, window(browser, served.url) as opened:
        tag = f"tabs-{tab_count}"
        tags = {"tags": [tag]}
        jobs = [enqueue(web, "talk", tags, gate=str(gate))["id"] for gate in gates]
        tabs = [opened.tab() for _ in range(tab_count)]
        for number, tab in enumerate(tabs):
            tab.get(f"page.follow('{jobs[0]}', {number})")  # each with its own cursor
            tab.get(f"page.list({{tag: '{tag}'}})")
        tabs[-1].get(f"page.follow('{jobs[1]}')")
        for tab in tabs:
            tab.until(f"page.jobs['{jobs[0]}'].seqs.length > 10 && page.loaded > 0")
        until(lambda: served.context.hub.followed_jobs == 2, "both jobs are followed")
        wait_for_streams(served, 1)
        for gate in gates:
            gate.touch()
        for job in jobs:
            wait_for(web, job, "succeeded")
        tabs[-1].until(f"page.jobs['{jobs[1]}'].end === 'job-completed'")
        for number, tab in enumerate(tabs):
            tab.until(f"page.jobs['{jobs[0]}'].end === 'job-completed'")
            assert tab.seqs(jobs[0]) == event_numbers(web, jobs[0])[number:]
            tab.until(f"page.lists['{jobs[0]}'][0] === 'succeeded'")
            recorded = tab.get(f"page.jobs['{jobs[0]}']")
            assert recorded["percents"] == sorted(recorded["percents"])
            assert (recorded["states"][-1], recorded["error"]) == ("succeeded", None)
            assert tab.console == []
        assert tabs[-1].seqs(jobs[1]) == event_numbers(web, jobs[1])
        wait_for_streams(served, 1)
    until(lambda: served.context.hub.open_streams == 0, "the stream closes with the browser")


@pytest.mark.slow
@pytest.mark.parametrize("tab_count", [10])
def test_no_tab_loses_an_event_when_the_server_is_killed_and_restarted(
    browser: Any, tmp_path: Path, tab_count: int
) -> None:
    gate = tmp_path / "gate"
    with ExitStack() as stack:
        behind = stack.enter_context(run_server(tmp_path, worker=True, app=make(tmp_path)))
        web = stack.enter_context(behind.client())

        def serve() -> LiveServer:
            server = run_server(tmp_path, app=make(tmp_path), around=RequestCounter().around)
            return stack.enter_context(server)

        first = serve()
        proxy = stack.enter_context(Proxy(first.url))
        opened = stack.enter_context(window(browser, proxy.url))
        job = enqueue(web, "talk", gate=str(gate))["id"]
        tabs = [opened.tab() for _ in range(tab_count)]
        for tab in tabs:
            tab.get(f"page.follow('{job}')")
            tab.until(f"page.jobs['{job}'].seqs.length > 5")
        proxy.open = False
        proxy.cut()
        for tab in tabs:
            tab.until("page.connections.at(-1) === 0")  # no response, no status
        first.stop()
        second = serve()
        proxy.target, proxy.open = second.url, True
        before = len(tabs[0].seqs(job))
        for tab in tabs:
            tab.until("page.connections.at(-1) === 'open'")
            tab.until(f"page.jobs['{job}'].seqs.length > {before + 5}")
        wait_for_streams(second, 1)
        gate.touch()
        wait_for(web, job, "succeeded")
        log = event_numbers(web, job)
        for tab in tabs:
            tab.until(f"page.jobs['{job}'].end === 'job-completed'")
            assert tab.seqs(job) == log
            # The browser logs each broken connection; there are no other messages.
            assert all("net::ERR" in line for line in tab.console), tab.console


@pytest.mark.slow
def test_a_closed_tab_is_unsubscribed_and_other_tabs_continue(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web, window(browser, served.url) as opened:
        shared, own = (enqueue(web, "talk", gate=str(gate))["id"] for _ in range(2))
        first, second = opened.tab(), opened.tab()
        for tab in (first, second):
            tab.get(f"page.follow('{shared}')")
        first.get(f"page.follow('{own}')")
        first.until(f"page.jobs['{own}'].seqs.length > 3")
        until(lambda: served.context.hub.followed_jobs == 2, "both are followed")
        first.page.close()
        until(lambda: served.context.hub.followed_jobs == 1, "the closed tab's job is dropped")
        wait_for_streams(served, 1)
        gate.touch()
        second.until(f"page.jobs['{shared}'].end === 'job-completed'")
        assert second.seqs(shared) == event_numbers(web, shared)
        assert second.console == []
        third = opened.tab()
        third.get(f"page.follow('{own}', 2)")  # the job has ended
        third.until(f"page.jobs['{own}'].end === 'job-completed'")
        assert third.seqs(own) == event_numbers(web, own)[2:]
        third.get("page.follow('01890a5d-ac96-774b-bcce-b302099a8057')")
        third.until("page.jobs['01890a5d-ac96-774b-bcce-b302099a8057'].error === 404")


@pytest.mark.slow
def test_tabs_share_one_poll(browser: Any, served: LiveServer) -> None:
    with window(browser, served.url) as opened:
        tabs = [opened.tab() for _ in range(5)]
        request_counter.paths.clear()
        for tab in tabs:
            tab.get("page.poll('/api/queues', 0.2)")
        for tab in tabs:
            tab.until("page.answers['/api/queues'].length >= 10")
        requests = request_counter.paths.count("/api/queues")
        most = max(tab.get("page.answers['/api/queues'].length") for tab in tabs)
        assert requests <= most + 1  # one is pending
        assert {tab.get("page.connections.at(-1)") for tab in tabs} == {"open"}
        for tab in tabs:
            tab.get("page.unpoll()")
        tabs[0].get("page.poll('/api/workers', 3600)")
        tabs[0].until("page.answers['/api/workers'].length === 1")
        tabs[1].get("page.poll('/api/workers', 3600)")  # cached
        tabs[1].until("page.answers['/api/workers'].length === 1")
        assert request_counter.paths.count("/api/workers") == 1
        tabs[2].get("page.live.refresh('/api/workers')")  # after a change
        for tab in tabs[:2]:
            tab.until("page.answers['/api/workers'].length === 2")
        assert request_counter.paths.count("/api/workers") == 2


@pytest.mark.slow
def test_sign_out_reaches_all_tabs_and_they_continue_after_sign_in(
    browser: Any, tmp_path: Path
) -> None:
    gate, request_counter = tmp_path / "gate", RequestCounter()
    config = ServerConfig(auth=AuthMode.KEYS)
    app = make(tmp_path)
    with (
        run_server(tmp_path, config, worker=True, app=app, around=request_counter.around) as served,
        window(browser, served.url) as opened,
    ):
        # The browser driver's event loop runs on this thread.
        with ThreadPoolExecutor(1) as executor:
            key = executor.submit(served.key, Role.OPERATOR).result()
        web = served.client(key)
        job = enqueue(web, "talk", gate=str(gate))["id"]
        tabs = [opened.tab() for _ in range(3)]
        assert tabs[0].get(f"page.session('POST', '{key}')") == 201
        for tab in tabs:
            tab.get(f"page.follow('{job}')")
            tab.get("page.poll('/api/queues', 0.2)")
            tab.until(f"page.jobs['{job}'].seqs.length > 5")
        assert tabs[0].get("page.session('DELETE')") == 204
        for tab in tabs:
            tab.until("page.connections.at(-1) === 401")
        until(lambda: "/api/events" in request_counter.refused, "the stream is refused")
        assert tabs[0].get("page.session('POST', 'wl_x_y')") == 401
        # No path is requested twice.
        refused = request_counter.refused
        assert len(refused) == len(set(refused))
        assert tabs[0].get(f"page.session('POST', '{key}')") == 201
        tabs[1].get("page.live.restart()")
        gate.touch()
        for tab in tabs:
            tab.until(f"page.jobs['{job}'].end === 'job-completed'")
            assert tab.seqs(job) == event_numbers(web, job)
        web.close()


@pytest.mark.slow
def test_without_shared_workers_each_tab_has_its_own_stream(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with (
        served.client() as web,
        window(browser, served.url, "delete window.SharedWorker") as opened,
    ):
        job = enqueue(web, "talk", gate=str(gate))["id"]
        tabs = [opened.tab() for _ in range(2)]
        for tab in tabs:
            tab.get(f"page.follow('{job}')")
            tab.get("page.poll('/api/queues', 0.2)")
            tab.until(f"page.jobs['{job}'].seqs.length > 5")
        wait_for_streams(served, 2)
        gate.touch()
        for tab in tabs:
            tab.until(f"page.jobs['{job}'].end === 'job-completed'")
            tab.until("page.answers['/api/queues'].length > 1")
            assert tab.seqs(job) == event_numbers(web, job)
            assert tab.console == []
