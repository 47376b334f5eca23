"""The job queue with live progress, as its clients see it: over a socket that may break."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import (
    STREAM,
    Said,
    Served,
    enqueue,
    exists,
    make_app,
    messages,
    opened,
    said,
    serving,
    until,
    wait_for,
)

from windlass import Context, InvalidInput, Windlass
from windlass.core.errors import StoreUnavailableError
from windlass.stores.memory import MemoryStore
from windlass.testing.wrapping import WrappedStore

PHASES = {
    "plan": "Initialization Queued Script Planning Brief",
    "tts": "TTS Audio Voice",
    "visuals": "Visuals Images Assets",
    "compose": "Composition Timeline Compose",
    "render": "Rendering Render Encode",
    "complete": "Complete Done",
    "processing": "Unheard Of",
}
STAGES = [(stage, phase) for phase, stages in PHASES.items() for stage in stages.split()]


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="stages")
    async def stages(ctx: Context) -> None:
        for stage, _ in STAGES:
            ctx.stage(stage)
            await ctx.flush()

    @app.task(name="video")
    async def video(ctx: Context, gate: str) -> None:
        (ctx.workspace / "part.tmp").touch()
        (ctx.proxy / "part.mp4").touch()
        for percent in (10, 30, 20, 40):
            ctx.progress(percent)
            await ctx.flush()
        await opened(gate)
        ctx.progress(90)
        ctx.warn("nearly")
        await ctx.flush()

    @app.task(name="refused", max_retries=0)
    async def refused(ctx: Context) -> None:
        ctx.stage("voice")
        ctx.log("looking for the text")
        raise InvalidInput("there is no text")

    return app


@pytest.fixture(scope="module")
def aura(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("aura")
    with serving(place, worker=True, app=make(place)) as one:
        yield one


def read(web: httpx.Client, job_id: str, last: str | None = None) -> list[Said]:
    headers = STREAM | ({} if last is None else {"Last-Event-ID": last})
    with web.stream("GET", f"/api/jobs/{job_id}/events", headers=headers) as response:
        return said(response)


def test_event_ids_only_rise(aura: Served) -> None:
    with aura.client() as web:
        found = read(web, enqueue(web, "stages")["id"])
    ids = [tuple(int(part) for part in (one.id or "").split("-")) for one in found]
    for before, after in pairwise(ids):
        assert before[0] <= after[0]
        assert before[1] + 1 == after[1]


def test_every_stage_is_told_with_its_phase(aura: Served) -> None:
    with aura.client() as web:
        found = read(web, enqueue(web, "stages")["id"])
    told = [one.data for one in found if one.type == "step-progress"]
    assert [(one["stage"], one["phase"]) for one in told] == STAGES
    percents = [one["progressPct"] for one in told]
    assert percents == sorted(percents)


def test_a_broken_connection_is_resumed_without_loss_or_repetition(
    aura: Served, tmp_path: Path
) -> None:
    """Cut after each event, as bad a line as can be; the job goes on meanwhile."""
    gate = tmp_path / "gate"
    seen: list[Said] = []
    with aura.client() as web:
        job = enqueue(web, "video", gate=str(gate))["id"]
        while not (seen and seen[-1].type == "job-completed"):
            if len(seen) == 5:
                gate.touch()
            headers = STREAM | ({"Last-Event-ID": seen[-1].id or ""} if seen else {})
            with web.stream("GET", f"/api/jobs/{job}/events", headers=headers) as response:
                news = messages(response)
                one = next(news)
                assert isinstance(one, Said)
                seen.append(one)
        last = web.get(f"/api/jobs/{job}").json()["seq"]
        assert read(web, job) == seen
    assert [one.seq for one in seen] == list(range(1, last + 1))


def test_progress_never_goes_back_and_ends_at_a_hundred(aura: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with aura.client() as web:
        found = read(web, enqueue(web, "video", gate=str(gate))["id"])
    told = [
        one.data.get("progressPct", one.data.get("percent"))
        for one in found
        if one.type in {"step-progress", "job-status", "job-completed"}
    ]
    assert told == sorted(told)
    assert 40 in told
    assert told[-1] == 100


def test_a_job_canceled_at_forty_percent_leaves_nothing_behind(
    aura: Served, tmp_path: Path
) -> None:
    with aura.client() as web:
        job = enqueue(web, "video", gate=str(tmp_path / "never"))["id"]
        until(lambda: web.get(f"/api/jobs/{job}").json()["percent"] == 40, "it is at 40 %")
        roots = [str(aura.app._workspaces.data / kind / job) for kind in ("temp", "proxy")]
        assert all(exists(root) for root in roots)
        answer = web.post(f"/api/jobs/{job}/cancel", json={"reason": "enough"}).json()
        assert (answer["status"], answer["cleanupScheduled"]) == ("requested", True)
        found = read(web, job)
        assert not any(exists(root) for root in roots)  # cleaned before it is told as canceled
        told = web.get(f"/api/jobs/{job}").json()
    assert told["state"] == "canceled"
    assert told["canceledAt"] == told["endedAt"]
    assert told["percent"] == 40
    assert [one.type for one in found[-2:]] == ["cancel-requested", "job-cancelled"]
    assert found[-1].data["message"] == "enough"


def test_a_failure_is_told_with_its_stage_its_errors_and_the_last_lines(aura: Served) -> None:
    with aura.client() as web:
        job = wait_for(web, enqueue(web, "refused")["id"], "failed")
        last = read(web, job["id"])[-1]
    assert last.type == "job-failed"
    assert last.data["status"] == "failed"
    assert last.data["stage"] == "voice"
    assert last.data["errorMessage"] == "there is no text"
    assert last.data["errors"] == ["there is no text"]
    assert last.data["logs"] == ["looking for the text"]
    assert job["lastError"]["errorType"] == "TERMINAL"


class Away(WrappedStore):
    """A store that stops answering for the logs of jobs when it is told to."""

    away: Any = None

    def wrap(self, store: Any) -> Away:
        made = Away(store)
        made.away = self.away
        return made

    async def around(self, verb: str, call: Any) -> Any:
        if verb in {"events", "tail"} and self.away.is_set():
            raise StoreUnavailableError("the disk is on fire")
        return await call()


def test_a_store_that_fails_ends_the_stream_with_an_error_event(tmp_path: Path) -> None:
    """It has no id: whoever comes back goes on after the last event that they have."""
    app = make_app(tmp_path)
    store = Away(MemoryStore())
    store.away = asyncio.Event()
    store.away.set()
    with (
        app.stand_in(store, tmp_path / "data"),
        serving(tmp_path, app=app) as served,
        served.client() as web,
    ):
        job = enqueue(web, "add", a=1)
        [told] = read(web, job["id"])
        assert (told.type, told.id) == ("error", None)
        assert told.data["message"] == "the disk is on fire"
        assert told.data["correlationId"] == job["correlationId"]
        store.away.clear()
        web.post(f"/api/jobs/{job['id']}/cancel")
        assert [one.seq for one in read(web, job["id"])] == [1, 2, 3]
