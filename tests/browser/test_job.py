"""The page of one job, watched while the job runs, fails, is canceled, and is looked at later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.job_page_helpers import Killable, Watch, make, watching
from tests.browser.page_helpers import LOST, PHONE, expect
from tests.js.conftest import log_of
from tests.server.conftest import Served, enqueue, serving, until, wait_for

FEW_NODES = 2000  # of the document, however long the log is


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("job-page")
    with serving(place, worker=True, app=make(place)) as one:
        yield one


def said(web: Any, job: str) -> list[str]:
    """The messages of what a job logged, as the server tells them."""
    return [one["data"]["message"] for one in log_of(web, job) if one["type"] == "log"]


def logged(lines: list[str]) -> list[str]:
    return [line.removeprefix("log ") for line in lines if line.startswith("log ")]


def ended(watch: Watch, word: str) -> None:
    expect(watch.page.locator(".name-row .badge")).to_have_text(word)


def test_a_job_is_watched_from_its_stages_to_its_result(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        job = enqueue(web, "cut", {"tags": ["new"]}, gate=str(gate))["id"]
        with watching(browser, served.url, job) as watch:
            ended(watch, "running")
            expect(watch.now).to_contain_text("25 %")
            expect(watch.now).to_contain_text("half of the voices")
            expect(watch.line("voices are recorded")).to_be_visible()
            bars = watch.page.locator(".track")
            expect(bars.get_by_role("img", name=re.compile("Stage plan:"))).to_be_visible()
            expect(bars.get_by_role("img", name=re.compile("Step look:"))).to_be_visible()
            expect(watch.button("Cancel this job")).to_be_visible()
            expect(watch.button("Retry this job")).to_have_count(0)
            gate.touch()
            ended(watch, "succeeded")
            expect(watch.now).to_contain_text("100 %")
            expect(watch.line("succeeded")).to_be_visible()
            watch.tab("Result").click()
            expect(watch.page.locator(".data .code")).to_contain_text('"file": "film.mp4"')
            watch.tab("Artifacts").click()
            made = watch.page.get_by_role("link", name="https://example.com/film.mp4")
            expect(made).to_have_attribute("href", "https://example.com/film.mp4")
            expect(watch.button("Cancel this job")).to_have_count(0)
            whole = bars.get_by_role("img", name=re.compile("Attempt 1:"))
            whole.focus()
            expect(watch.page.locator(".time-axis .told")).to_contain_text("Attempt 1:")


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back_costs_no_line(browser: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    server = Killable(tmp_path)
    with serving(tmp_path, worker=True, app=make(tmp_path)) as behind, behind.client() as web:
        server.prepare()
        server.start()
        server.prepare()
        job = enqueue(web, "talk", gate=str(gate))["id"]
        try:
            with watching(browser, server.url, job, expected=(LOST,)) as watch:
                expect(watch.lines.nth(20)).to_be_visible()
                server.kill()
                expect(watch.page.locator(".line.lost")).to_be_visible()
                missed = len(watch.downloaded()) + 20
                until(lambda: web.get(f"/api/jobs/{job}").json()["seq"] > missed, "it goes on")
                server.start()
                watch.looked_at_again()  # nobody has to wait who looks
                gate.touch()
                wait_for(web, job, "succeeded")
                ended(watch, "succeeded")
                expect(watch.line("succeeded")).to_be_visible()
                told = said(web, job)
                assert told == [f"line {number}" for number in range(1, len(told) + 1)]
                assert logged(watch.downloaded()) == told
        finally:
            server.kill()


def test_a_job_is_canceled_at_forty_percent_with_a_reason(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    with served.client() as web:
        job = enqueue(web, "forty", gate=str(tmp_path / "never"))["id"]
        with watching(browser, served.url, job) as watch:
            expect(watch.now).to_contain_text("40 %")
            watch.button("Cancel this job").click()
            watch.page.get_by_label("Reason").fill("enough of it")
            watch.button("Cancel the job").click()
            ended(watch, "canceled")
            expect(watch.now).to_contain_text("40 %")
            expect(watch.page.locator(".note.state-canceled")).to_contain_text("enough of it")
            expect(watch.button("Cancel this job")).to_have_count(0)
        assert wait_for(web, job, "canceled")["cancelReason"] == "enough of it"


def test_a_failed_job_shows_its_traceback_and_a_retry_leads_to_the_new_job(
    browser: Any, served: Served
) -> None:
    with served.client() as web:
        job = enqueue(web, "say", events=[], fail="the lens is broken")["id"]
        wait_for(web, job, "failed")
        with watching(browser, served.url, job) as watch:
            expect(watch.page.locator(".error-note")).to_contain_text("the lens is broken")
            trace = watch.page.get_by_role("group", name="Traceback")
            expect(trace).to_contain_text("ValueError: the lens is broken")
            expect(trace).to_contain_text("raise ValueError(fail)")
            watch.button("Retry this job").click()
            expect(watch.page).not_to_have_url(re.compile(job))
            ended(watch, "failed")
            watch.page.locator(".facts").get_by_role("link", name=f"…{job[-8:]}").click()
            expect(watch.page).to_have_url(re.compile(job))
            expect(watch.page.locator(".facts")).to_contain_text("Retried as")
            expect(watch.button("Retry this job")).to_have_count(0)


def test_why_a_job_waits_is_told_and_mended_from_the_page(browser: Any, served: Served) -> None:
    with served.client() as web:
        job = enqueue(web, "add", {"hold": True}, a=1)["id"]
        with watching(browser, served.url, job) as watch:
            why = watch.page.get_by_role("region", name="Why is it not running?")
            expect(why).to_contain_text("held until somebody submits it")
            watch.button("Submit this job").click()
            ended(watch, "succeeded")
            expect(why).to_have_count(0)


@pytest.mark.slow
def test_what_a_job_depends_on_is_drawn_and_changes_as_it_runs(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        first = enqueue(web, "forty", gate=str(gate))["id"]
        job = enqueue(web, "add", {"dependsOn": [first]}, a=1)["id"]
        with watching(browser, served.url, job) as watch:
            graph = watch.page.get_by_role("region", name="Dependency graph")
            parent = graph.get_by_role("link", name=re.compile("forty"))
            expect(parent).to_contain_text("running")
            expect(parent).to_contain_text("40 %")
            expect(graph.get_by_role("link", name=re.compile("add"))).to_contain_text("created")
            why = watch.page.get_by_role("region", name="Why is it not running?")
            expect(why.get_by_role("link").first).to_have_attribute("href", f"/jobs/{first}")
            gate.touch()
            ended(watch, "succeeded")
            expect(parent).to_contain_text("succeeded")
            parent.click()
            expect(watch.page).to_have_url(re.compile(first))


def output(text: str, stream: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "output", {"stream": stream, "text": text}


@pytest.mark.slow
def test_output_has_its_colours_and_is_searched_and_filtered(browser: Any, served: Served) -> None:
    events = [
        output("\x1b[1;31mred\x1b[0m plain \x1b[38;5;46mgre"),
        output("en\x1b[0m\n10 %\r50 %\r\x1b[32m100 %\x1b[0m\nneedle one\n"),
        output("\x1b]0;a title\x07not \x1b[31", "stderr"),
        output("mcut\x1b[0m\n", "stderr"),
        ("log", {"level": "info", "message": "a NEEDLE in the log"}),
        ("warning", {"message": "beware"}),
    ]
    with served.client() as web:
        job = enqueue(web, "say", events=events)["id"]
        wait_for(web, job, "succeeded")
        with watching(browser, served.url, job) as watch:
            red = watch.page.locator(".log-lines .bold.fg-1")
            expect(red).to_have_text("red")
            assert red.evaluate("one => getComputedStyle(one).fontWeight") == "700"
            expect(watch.lines.filter(has_text="red plain green")).to_have_count(1)
            expect(watch.lines.filter(has_text="0 %").locator(".text")).to_have_text("100 %")
            expect(watch.lines.filter(has_text="not cut").locator(".fg-1")).to_have_text("cut")
            watch.page.get_by_label("Search the log").fill("needle")
            expect(watch.page.locator("mark")).to_have_text(["needle", "NEEDLE"])
            expect(watch.page.get_by_label("Matching lines")).to_have_text("2")
            watch.button("Next match").click()
            expect(watch.page.locator(".current mark")).to_have_text("needle")
            watch.button("Next match").click()
            expect(watch.page.locator(".current mark")).to_have_text("NEEDLE")
            watch.button("Previous match").click()
            expect(watch.page.get_by_label("Matching lines")).to_have_text("1 of 2")
            watch.button("Output").click()
            expect(watch.lines.filter(has_text="needle one")).to_have_count(0)
            expect(watch.page).to_have_url(re.compile("find=needle.*hide=output"))
            watch.page.reload()  # the address says it all
            expect(watch.page.locator("mark")).to_have_text(["NEEDLE"])


@pytest.mark.slow
def test_the_log_is_replayed_from_any_point(browser: Any, served: Served) -> None:
    steps = [
        ("stage", {"name": name, "message": f"at {name}"}) for name in ("plan", "tts", "render")
    ]
    events = [
        one for step in steps for one in (step, ("log", {"message": f"in {step[1]['name']}"}))
    ]
    with served.client() as web:
        job = enqueue(web, "say", events=events)["id"]
        wait_for(web, job, "succeeded")
        with watching(browser, served.url, job) as watch:
            expect(watch.line("in render")).to_be_visible()
            watch.lines.filter(has_text="in tts").get_by_role("button").click()
            expect(watch.line("in tts")).to_be_visible()
            expect(watch.line("in render")).to_have_count(0)
            expect(watch.page.locator(".then .badge")).to_have_text("running")
            expect(watch.now).to_contain_text("tts")
            watch.page.get_by_label("Speed of the replay").select_option("at once")
            watch.button("Replay the log").click()
            expect(watch.line("in render")).to_be_visible()
            expect(watch.page.locator(".then .badge")).to_have_text("succeeded")
            watch.button("Live").click()
            expect(watch.page.locator(".then")).to_have_count(0)


# Typed and entered before anything is drawn again, as on a slow machine.
FOUND_AT_ONCE = """(box, text) => {
  box.value = text;
  box.dispatchEvent(new InputEvent("input", { bubbles: true }));
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
}"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [20_000])
def test_a_log_of_thousands_of_lines_keeps_the_document_small(
    browser: Any, served: Served, count: int
) -> None:
    with served.client() as web:
        job = enqueue(web, "many", count=count)["id"]
        wait_for(web, job, "succeeded")
        with watching(browser, served.url, job) as watch:
            expect(watch.line(f"line {count}")).to_be_visible()
            nodes = "document.querySelectorAll('*').length"
            assert watch.page.evaluate(nodes) < FEW_NODES
            box = watch.page.get_by_role("group", name="Lines of the log")
            box.evaluate("one => { one.scrollTop = one.scrollHeight / 2 }")
            expect(watch.line(f"line {count // 2}")).to_be_visible()
            expect(watch.button("Follow")).to_be_visible()
            assert watch.page.evaluate(nodes) < FEW_NODES
            far = f"line {count // 5 + 42}"
            watch.page.get_by_label("Search the log").evaluate(FOUND_AT_ONCE, far)
            expect(watch.line(far)).to_be_visible()
            watch.button("Follow").click()
            expect(watch.line(f"line {count}")).to_be_visible()
            assert len(logged(watch.downloaded())) == count


@pytest.mark.slow
def test_a_paused_log_stays_where_it_is_and_counts_what_comes(
    browser: Any, served: Served, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        job = enqueue(web, "talk", gate=str(gate))["id"]
        with watching(browser, served.url, job) as watch:
            expect(watch.lines.nth(45)).to_be_visible()  # more than fit in
            watch.button("Pause").click()
            box = watch.page.get_by_role("group", name="Lines of the log")
            box.evaluate("one => { one.scrollTop = 0 }")
            expect(watch.line("line 1")).to_be_visible()
            expect(watch.page.get_by_role("button", name=re.compile("new line"))).to_be_visible()
            gate.touch()
            ended(watch, "succeeded")
            assert box.evaluate("one => one.scrollTop") == 0
            watch.page.get_by_role("button", name=re.compile("new line")).click()
            expect(watch.line("succeeded")).to_be_visible()


@pytest.mark.slow
def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser: Any, served: Served) -> None:
    long = "a-word-without-any-end-" * 20
    events = [("stage", {"name": long[:100], "message": long}), ("log", {"message": long})]
    with served.client() as web:
        options = {"tags": [long[:60], "short"], "owner": "somebody-" * 6}
        job = enqueue(web, "say", options, events=events, fail=long)["id"]
        wait_for(web, job, "failed")
        for tab in ("log", "error"):
            with watching(browser, served.url, job, f"?tab={tab}", viewport=PHONE) as watch:
                expect(watch.page.locator(".error-note")).to_contain_text("without-any-end")
                expect(watch.page.locator(".facts")).to_contain_text("somebody")
                assert not watch.too_wide
                for name in ("Arguments", "Result", "Headers", "Copy as"):
                    watch.tab(name).click()
                    assert not watch.too_wide, name


@pytest.mark.slow
def test_there_is_no_such_job_and_one_that_is_deleted_meanwhile(
    browser: Any, served: Served
) -> None:
    with served.client() as web:
        job = enqueue(web, "add", a=1)["id"]
        wait_for(web, job, "succeeded")
        missing = ("status of 404",)
        with watching(browser, served.url, f"{job[:-4]}0000", expected=missing) as watch:
            expect(watch.page.get_by_role("heading", name="There is no such job")).to_be_visible()
            watch.show(job)
            ended(watch, "succeeded")
            assert web.delete(f"/api/jobs/{job}").status_code == 204
            alert = watch.page.get_by_role("alert")
            expect(alert).to_contain_text("This job was deleted")
            expect(watch.button("Delete this job")).to_have_count(0)


CORPUS = (
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


def test_nothing_that_a_job_carries_is_run(browser: Any, served: Served) -> None:
    events = [event for bad in CORPUS for event in hostile(bad)]
    headers = {f"x-said-{number}": bad for number, bad in enumerate(CORPUS)}
    with served.client() as web:
        tags = [bad for bad in CORPUS if accepted(web, "tags", [bad])]
        headers = {
            name: bad for name, bad in headers.items() if accepted(web, "headers", {name: bad})
        }
        assert len(tags) + len(headers) > len(CORPUS)
        options = {"headers": headers, "tags": tags}
        good = enqueue(web, "say", options, events=events)["id"]
        broken = enqueue(web, "say", options, events=events, fail="\n".join(CORPUS))["id"]
        wait_for(web, good, "succeeded")
        wait_for(web, broken, "failed")
        with watching(browser, served.url, good, "?data=result") as watch:
            for name in ("Arguments", "Headers", "Artifacts", "Copy as"):
                watch.tab(name).click()
                harmless(watch)
            for bad in CORPUS:
                watch.page.get_by_label("Search the log").fill(shown(bad))
                watch.page.get_by_label("Search the log").press("Enter")
                expect(watch.page.locator(".current mark").first).to_have_text(shown(bad))
                harmless(watch)
            watch.show(broken)
            for bad in CORPUS:
                expect(watch.page.locator(".error-note")).to_contain_text(
                    bad[-12:].strip("\x07\x1b\\")
                )
            harmless(watch)


@pytest.mark.slow
def test_nothing_that_a_job_is_called_is_run(browser: Any, served: Served) -> None:
    with served.client() as web, watching(browser, served.url, "") as watch:
        for one, other in zip(CORPUS, reversed(CORPUS), strict=True):
            wanted = {"owner": one, "limitKey": one, "queue": other, "uniqueKey": other}
            names = {key: bad for key, bad in wanted.items() if accepted(web, key, bad)}
            watch.show(enqueue(web, "add", {"hold": True, **names}, a=1)["id"])
            for bad in names.values():
                expect(watch.page.locator(".facts")).to_contain_text(bad)
            harmless(watch)


def hostile(bad: str) -> list[tuple[str, dict[str, Any]]]:
    """The same in all that a task can say."""
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
    """Whether a job may carry it there at all."""
    body = {"task": "add", "arguments": {"a": 1}, "hold": True, key: value}
    return bool(web.post("/api/jobs", json=body).is_success)


def shown(text: str) -> str:
    """What a terminal shows of it."""
    return re.sub("\x1b\\][^\x07]*\x07", "", text)


def harmless(watch: Watch) -> None:
    assert watch.page.evaluate("window.pwned") is None
    assert watch.page.locator("main :is(script, img, iframe, style, object)").count() == 0
    addresses = (
        "[...document.querySelectorAll('main a[href]')].map(one => new URL(one.href).protocol)"
    )
    assert set(watch.page.evaluate(addresses)) <= {"http:", "https:", "about:"}
