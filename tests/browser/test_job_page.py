"""Job page: while the job runs, fails, is canceled, and afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.job_page_helpers import JobPage, KillableServer, make, open_job
from tests.browser.page_helpers import CONNECTION_ERROR, PHONE, expect
from tests.js.sample_tasks import log_of
from tests.server.conftest import LiveServer, enqueue, run_server, until, wait_for

MAX_NODES = 2000  # of the document, however long the log is


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    place = tmp_path_factory.mktemp("job-page")
    with run_server(place, worker=True, app=make(place)) as server:
        yield server


def log_messages(web: Any, job: str) -> list[str]:
    """Return the messages of a job's log events from the server."""
    return [event["data"]["message"] for event in log_of(web, job) if event["type"] == "log"]


def logged(lines: list[str]) -> list[str]:
    return [line.removeprefix("log ") for line in lines if line.startswith("log ")]


def expect_state(job_page: JobPage, state: str) -> None:
    expect(job_page.page.locator(".name-row .badge")).to_have_text(state)


def test_the_page_follows_a_job_from_its_stages_to_its_result(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        job = enqueue(web, "cut", {"tags": ["new"]}, gate=str(gate))["id"]
        with open_job(browser, served.url, job) as job_page:
            expect_state(job_page, "running")
            expect(job_page.progress).to_contain_text("25 %")
            expect(job_page.progress).to_contain_text("half of the voices")
            expect(job_page.line("voices are recorded")).to_be_visible()
            bars = job_page.page.locator(".track")
            expect(bars.get_by_role("img", name=re.compile("Stage plan:"))).to_be_visible()
            expect(bars.get_by_role("img", name=re.compile("Step inspect:"))).to_be_visible()
            expect(job_page.button("Cancel this job")).to_be_visible()
            expect(job_page.button("Retry this job")).to_have_count(0)
            gate.touch()
            expect_state(job_page, "succeeded")
            expect(job_page.progress).to_contain_text("100 %")
            expect(job_page.line("succeeded")).to_be_visible()
            job_page.tab("Result").click()
            expect(job_page.page.locator(".data .code")).to_contain_text('"file": "film.mp4"')
            job_page.tab("Artifacts").click()
            made = job_page.page.get_by_role("link", name="https://example.com/film.mp4")
            expect(made).to_have_attribute("href", "https://example.com/film.mp4")
            expect(job_page.button("Cancel this job")).to_have_count(0)
            whole = bars.get_by_role("img", name=re.compile("Attempt 1:"))
            whole.focus()
            expect(job_page.page.locator(".time-axis .detail")).to_contain_text("Attempt 1:")


@pytest.mark.slow
def test_no_log_line_is_lost_when_the_server_is_killed_and_restarted(
    browser: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    server = KillableServer(tmp_path)
    with run_server(tmp_path, worker=True, app=make(tmp_path)) as behind, behind.client() as web:
        server.prepare()
        server.start()
        server.prepare()
        job = enqueue(web, "talk", gate=str(gate))["id"]
        try:
            with open_job(browser, server.url, job, expected=(CONNECTION_ERROR,)) as job_page:
                expect(job_page.lines.nth(20)).to_be_visible()
                server.kill()
                expect(job_page.page.locator(".connection.lost")).to_be_visible()
                missed = len(job_page.downloaded()) + 20
                until(
                    lambda: web.get(f"/api/jobs/{job}").json()["seq"] > missed, "the job continues"
                )
                server.start()
                job_page.switch_to_tab()  # reconnects at once
                gate.touch()
                wait_for(web, job, "succeeded")
                expect_state(job_page, "succeeded")
                expect(job_page.line("succeeded")).to_be_visible()
                messages = log_messages(web, job)
                assert messages == [f"line {number}" for number in range(1, len(messages) + 1)]
                assert logged(job_page.downloaded()) == messages
        finally:
            server.kill()


def test_a_job_is_canceled_at_forty_percent_with_a_reason(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    with served.client() as web:
        job = enqueue(web, "forty", gate=str(tmp_path / "never"))["id"]
        with open_job(browser, served.url, job) as job_page:
            expect(job_page.progress).to_contain_text("40 %")
            job_page.button("Cancel this job").click()
            job_page.page.get_by_label("Reason").fill("enough of it")
            job_page.button("Cancel job").click()
            expect_state(job_page, "canceled")
            expect(job_page.progress).to_contain_text("40 %")
            expect(job_page.page.locator(".note.state-canceled")).to_contain_text("enough of it")
            expect(job_page.button("Cancel this job")).to_have_count(0)
        assert wait_for(web, job, "canceled")["cancelReason"] == "enough of it"


def test_a_failed_job_shows_its_traceback_and_a_retry_opens_the_new_job(
    browser: Any, served: LiveServer
) -> None:
    with served.client() as web:
        job = enqueue(web, "emit", events=[], fail="the lens is broken")["id"]
        wait_for(web, job, "failed")
        with open_job(browser, served.url, job) as job_page:
            expect(job_page.page.locator(".error-note")).to_contain_text("the lens is broken")
            trace = job_page.page.get_by_role("group", name="Traceback")
            expect(trace).to_contain_text("ValueError: the lens is broken")
            expect(trace).to_contain_text("raise ValueError(fail)")
            job_page.button("Retry this job").click()
            expect(job_page.page).not_to_have_url(re.compile(job))
            expect_state(job_page, "failed")
            job_page.page.locator(".field-list").get_by_role("link", name=f"…{job[-8:]}").click()
            expect(job_page.page).to_have_url(re.compile(job))
            expect(job_page.page.locator(".field-list")).to_contain_text("Retried as")
            expect(job_page.button("Retry this job")).to_have_count(0)


def test_the_page_shows_why_a_job_waits_and_submits_it(browser: Any, served: LiveServer) -> None:
    with served.client() as web:
        job = enqueue(web, "add", {"hold": True}, a=1)["id"]
        with open_job(browser, served.url, job) as job_page:
            why = job_page.page.get_by_role("region", name="Why is this job not running?")
            expect(why).to_contain_text("Held until it is submitted")
            job_page.button("Submit this job").click()
            expect_state(job_page, "succeeded")
            expect(why).to_have_count(0)


@pytest.mark.slow
def test_the_dependency_graph_updates_as_jobs_run(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        first = enqueue(web, "forty", gate=str(gate))["id"]
        job = enqueue(web, "add", {"dependsOn": [first]}, a=1)["id"]
        with open_job(browser, served.url, job) as job_page:
            graph = job_page.page.get_by_role("region", name="Dependency graph")
            parent = graph.get_by_role("link", name=re.compile("forty"))
            expect(parent).to_contain_text("running")
            expect(parent).to_contain_text("40 %")
            expect(graph.get_by_role("link", name=re.compile("add"))).to_contain_text("created")
            why = job_page.page.get_by_role("region", name="Why is this job not running?")
            expect(why.get_by_role("link").first).to_have_attribute("href", f"/jobs/{first}")
            gate.touch()
            expect_state(job_page, "succeeded")
            expect(parent).to_contain_text("succeeded")
            parent.click()
            expect(job_page.page).to_have_url(re.compile(first))


def output(text: str, stream: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "output", {"stream": stream, "text": text}


@pytest.mark.slow
def test_log_output_is_colored_searched_and_filtered(browser: Any, served: LiveServer) -> None:
    events = [
        output("\x1b[1;31mred\x1b[0m plain \x1b[38;5;46mgre"),
        output("en\x1b[0m\n10 %\r50 %\r\x1b[32m100 %\x1b[0m\nneedle one\n"),
        output("\x1b]0;a title\x07not \x1b[31", "stderr"),
        output("mcut\x1b[0m\n", "stderr"),
        ("log", {"level": "info", "message": "a NEEDLE in the log"}),
        ("warning", {"message": "beware"}),
    ]
    with served.client() as web:
        job = enqueue(web, "emit", events=events)["id"]
        wait_for(web, job, "succeeded")
        with open_job(browser, served.url, job) as job_page:
            red = job_page.page.locator(".log-lines .bold.fg-1")
            expect(red).to_have_text("red")
            assert red.evaluate("element => getComputedStyle(element).fontWeight") == "700"
            expect(job_page.lines.filter(has_text="red plain green")).to_have_count(1)
            expect(job_page.lines.filter(has_text="0 %").locator(".text")).to_have_text("100 %")
            expect(job_page.lines.filter(has_text="not cut").locator(".fg-1")).to_have_text("cut")
            job_page.page.get_by_label("Search log").fill("needle")
            expect(job_page.page.locator("mark")).to_have_text(["needle", "NEEDLE"])
            expect(job_page.page.get_by_label("Matching lines")).to_have_text("2")
            job_page.button("Next match").click()
            expect(job_page.page.locator(".current mark")).to_have_text("needle")
            job_page.button("Next match").click()
            expect(job_page.page.locator(".current mark")).to_have_text("NEEDLE")
            job_page.button("Previous match").click()
            expect(job_page.page.get_by_label("Matching lines")).to_have_text("1 of 2")
            job_page.button("Output").click()
            expect(job_page.lines.filter(has_text="needle one")).to_have_count(0)
            expect(job_page.page).to_have_url(re.compile("find=needle.*hide=output"))
            job_page.page.reload()  # the URL has all settings
            expect(job_page.page.locator("mark")).to_have_text(["NEEDLE"])


@pytest.mark.slow
def test_the_log_is_replayed_from_any_point(browser: Any, served: LiveServer) -> None:
    steps = [
        ("stage", {"name": name, "message": f"at {name}"}) for name in ("plan", "tts", "render")
    ]
    events = [
        event for step in steps for event in (step, ("log", {"message": f"in {step[1]['name']}"}))
    ]
    with served.client() as web:
        job = enqueue(web, "emit", events=events)["id"]
        wait_for(web, job, "succeeded")
        with open_job(browser, served.url, job) as job_page:
            expect(job_page.line("in render")).to_be_visible()
            job_page.lines.filter(has_text="in tts").get_by_role("button").click()
            expect(job_page.line("in tts")).to_be_visible()
            expect(job_page.line("in render")).to_have_count(0)
            expect(job_page.page.locator(".replay-time .badge")).to_have_text("running")
            expect(job_page.progress).to_contain_text("tts")
            job_page.page.get_by_label("Replay speed").select_option("instant")
            job_page.button("Replay log").click()
            expect(job_page.line("in render")).to_be_visible()
            expect(job_page.page.locator(".replay-time .badge")).to_have_text("succeeded")
            job_page.button("Live").click()
            expect(job_page.page.locator(".replay-time")).to_have_count(0)


# Types and presses Enter before the next rendering, as on a slow machine.
_TYPE_AND_ENTER = """(box, text) => {
  box.value = text;
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [20_000])
def test_a_log_of_thousands_of_lines_keeps_the_document_small(
    browser: Any, served: LiveServer, count: int
) -> None:
    with served.client() as web:
        job = enqueue(web, "many", count=count)["id"]
        wait_for(web, job, "succeeded")
        with open_job(browser, served.url, job) as job_page:
            expect(job_page.line(f"line {count}")).to_be_visible()
            nodes = "document.querySelectorAll('*').length"
            assert job_page.page.evaluate(nodes) < MAX_NODES
            box = job_page.page.get_by_role("group", name="Log lines")
            box.evaluate("element => { element.scrollTop = element.scrollHeight / 2 }")
            expect(job_page.line(f"line {count // 2}")).to_be_visible()
            expect(job_page.button("Follow")).to_be_visible()
            assert job_page.page.evaluate(nodes) < MAX_NODES
            far = f"line {count // 5 + 42}"
            job_page.page.get_by_label("Search log").evaluate(_TYPE_AND_ENTER, far)
            expect(job_page.line(far)).to_be_visible()
            job_page.button("Follow").click()
            expect(job_page.line(f"line {count}")).to_be_visible()
            assert len(logged(job_page.downloaded())) == count


@pytest.mark.slow
def test_a_paused_log_keeps_its_position_and_counts_new_lines(
    browser: Any, served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        job = enqueue(web, "talk", gate=str(gate))["id"]
        with open_job(browser, served.url, job) as job_page:
            expect(job_page.lines.nth(45)).to_be_visible()  # more than fit
            job_page.button("Pause").click()
            box = job_page.page.get_by_role("group", name="Log lines")
            box.evaluate("element => { element.scrollTop = 0 }")
            expect(job_page.line("line 1")).to_be_visible()
            expect(job_page.page.get_by_role("button", name=re.compile("new line"))).to_be_visible()
            gate.touch()
            expect_state(job_page, "succeeded")
            assert box.evaluate("element => element.scrollTop") == 0
            job_page.page.get_by_role("button", name=re.compile("new line")).click()
            expect(job_page.line("succeeded")).to_be_visible()


@pytest.mark.slow
def test_the_job_page_fits_a_phone_without_horizontal_scrolling(
    browser: Any, served: LiveServer
) -> None:
    long = "a-word-without-any-end-" * 20
    events = [("stage", {"name": long[:100], "message": long}), ("log", {"message": long})]
    with served.client() as web:
        options = {"tags": [long[:60], "short"], "owner": "longname-" * 6}
        job = enqueue(web, "emit", options, events=events, fail=long)["id"]
        wait_for(web, job, "failed")
        for tab in ("log", "error"):
            with open_job(browser, served.url, job, f"?tab={tab}", viewport=PHONE) as job_page:
                expect(job_page.page.locator(".error-note")).to_contain_text("without-any-end")
                expect(job_page.page.locator(".field-list")).to_contain_text("longname")
                assert not job_page.scrolls_horizontally
                for name in ("Arguments", "Result", "Headers", "Copy as"):
                    job_page.tab(name).click()
                    assert not job_page.scrolls_horizontally, name


@pytest.mark.slow
def test_an_unknown_job_and_a_job_deleted_while_shown(browser: Any, served: LiveServer) -> None:
    with served.client() as web:
        job = enqueue(web, "add", a=1)["id"]
        wait_for(web, job, "succeeded")
        missing = ("status of 404",)
        with open_job(browser, served.url, f"{job[:-4]}0000", expected=missing) as job_page:
            expect(job_page.page.get_by_role("heading", name="Job not found")).to_be_visible()
            job_page.show(job)
            expect_state(job_page, "succeeded")
            assert web.delete(f"/api/jobs/{job}").status_code == 204
            alert = job_page.page.get_by_role("alert")
            expect(alert).to_contain_text("This job was deleted")
            expect(job_page.button("Delete this job")).to_have_count(0)


HOSTILE_TEXTS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "javascript:window.pwned=1",
    "'-window.pwned=1-'",
    "</textarea><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "data:text/html,<script>window.pwned=1</script>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\x1b]8;;javascript:window.pwned=1\x07link\x1b]8;;\x07",
    "<style>*{background:url(//evil.example/x)}</style>",
)


def test_job_data_is_never_executed(browser: Any, served: LiveServer) -> None:
    events = [event for bad in HOSTILE_TEXTS for event in hostile_events(bad)]
    headers = {f"x-said-{number}": bad for number, bad in enumerate(HOSTILE_TEXTS)}
    with served.client() as web:
        tags = [bad for bad in HOSTILE_TEXTS if accepted(web, "tags", [bad])]
        headers = {
            name: bad for name, bad in headers.items() if accepted(web, "headers", {name: bad})
        }
        assert len(tags) + len(headers) > len(HOSTILE_TEXTS)
        options = {"headers": headers, "tags": tags}
        good = enqueue(web, "emit", options, events=events)["id"]
        broken = enqueue(web, "emit", options, events=events, fail="\n".join(HOSTILE_TEXTS))["id"]
        wait_for(web, good, "succeeded")
        wait_for(web, broken, "failed")
        with open_job(browser, served.url, good, "?data=result") as job_page:
            for name in ("Arguments", "Headers", "Artifacts", "Copy as"):
                job_page.tab(name).click()
                assert_not_executed(job_page)
            for bad in HOSTILE_TEXTS:
                job_page.page.get_by_label("Search log").fill(shown(bad))
                job_page.page.get_by_label("Search log").press("Enter")
                expect(job_page.page.locator(".current mark").first).to_have_text(shown(bad))
                assert_not_executed(job_page)
            job_page.show(broken)
            for bad in HOSTILE_TEXTS:
                expect(job_page.page.locator(".error-note")).to_contain_text(
                    bad[-12:].strip("\x07\x1b\\")
                )
            assert_not_executed(job_page)


@pytest.mark.slow
def test_job_names_are_never_executed(browser: Any, served: LiveServer) -> None:
    with served.client() as web, open_job(browser, served.url, "") as job_page:
        for first, second in zip(HOSTILE_TEXTS, reversed(HOSTILE_TEXTS), strict=True):
            wanted = {"owner": first, "limitKey": first, "queue": second, "uniqueKey": second}
            names = {key: bad for key, bad in wanted.items() if accepted(web, key, bad)}
            job_page.show(enqueue(web, "add", {"hold": True, **names}, a=1)["id"])
            for bad in names.values():
                expect(job_page.page.locator(".field-list")).to_contain_text(bad)
            assert_not_executed(job_page)


def hostile_events(bad: str) -> list[tuple[str, dict[str, Any]]]:
    """The same text in every event type."""
    return [
        ("stage", {"name": bad, "message": bad}),
        ("log", {"level": bad, "message": bad}),
        ("output", {"stream": bad, "text": f"\x1b[31m{bad}\x1b[0m\r\n"}),
        ("warning", {"message": bad}),
        ("error", {"message": {bad: bad}}),
        ("artifact", {"name": bad, "uri": bad, "size": bad}),
        ("process-start", {"pid": bad, "command": bad}),
        ("process-end", {"exitCode": bad, "runDuration": bad}),
    ]


def accepted(web: Any, key: str, value: Any) -> bool:
    """Whether the server accepts the value."""
    body = {"task": "add", "arguments": {"a": 1}, "hold": True, key: value}
    return bool(web.post("/api/jobs", json=body).is_success)


def shown(text: str) -> str:
    """Return the visible text."""
    return re.sub("\x1b\\][^\x07]*\x07", "", text)


def assert_not_executed(job_page: JobPage) -> None:
    assert job_page.page.evaluate("window.pwned") is None
    assert job_page.page.locator("main :is(script, img, iframe, style, object)").count() == 0
    addresses = (
        "[...document.querySelectorAll('main a[href]')].map(link => new URL(link.href).protocol)"
    )
    assert set(job_page.page.evaluate(addresses)) <= {"http:", "https:", "about:"}
