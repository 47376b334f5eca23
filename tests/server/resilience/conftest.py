"""A server with a worker, and the tasks of the specification's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from tests.js.proxy import Proxy
from tests.server.conftest import (
    STREAM,
    LiveServer,
    SseMessage,
    enqueue,
    exists,
    make_app,
    messages,
    read_messages,
    run_server,
    until,
    wait_for_file,
)
from tests.server.stream_faults import FaultyStreams, reorder_and_repeat

from windlass import Context, InvalidInput, Windlass, fixed


def make_spec_app(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="reports", max_retries=0)
    async def reports(ctx: Context, percents: list[int], good: bool = True) -> None:
        for percent in percents:
            ctx.progress(percent)
            ctx.log("each report is stored")
            await ctx.flush()
        if not good:
            raise InvalidInput("a success would set 100 %")

    @app.task(name="stage")
    async def stage(ctx: Context, name: str) -> None:
        ctx.stage(name)
        await ctx.flush()

    @app.task(name="video")
    async def video(ctx: Context, gate: str) -> None:
        (ctx.workspace / "part.tmp").touch()
        (ctx.proxy / "part.mp4").touch()
        for percent in (10, 30, 20, 40):
            ctx.progress(percent)
            await ctx.flush()
        await wait_for_file(gate)
        ctx.progress(90)
        ctx.warn("nearly")
        await ctx.flush()

    _add_failing_tasks(app)
    _add_event_tasks(app)
    return app


def _add_failing_tasks(app: Windlass) -> None:
    @app.task(name="refused", max_retries=0)
    async def refused(ctx: Context) -> None:
        ctx.stage("voice")
        ctx.log("looking for the text")
        raise InvalidInput("there is no text")

    @app.task(name="second time", max_retries=1, backoff=fixed(0))
    async def second_time(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise OSError("not yet")

    @app.task(name="pipeline", max_retries=0)
    async def pipeline(ctx: Context, notes: str, success_file: str) -> None:
        async def work(name: str) -> None:
            add(notes, name)
            if name == "render" and not exists(success_file):
                raise OSError("render broke")

        for name in ("script", "voice", "visuals", "render"):
            await ctx.astep(name, work, name)


def _add_event_tasks(app: Windlass) -> None:
    @app.task(name="eventful", max_retries=0)
    async def eventful(ctx: Context, end: str) -> None:
        async def step() -> None: ...

        ctx.stage("voice")
        await ctx.astep("speak", step)
        ctx.progress(50, "half")
        ctx.warn("hoarse")
        ctx.emit("error", {"message": "text is missing"})
        await ctx.flush()
        if end == "failed":
            raise InvalidInput("no voice left")
        if end == "canceled":
            await wait_for_file("/never")


def add(file: str, text: str) -> None:
    with Path(file).open("a") as notes:
        notes.write(f"{text} ")


def with_faulty_streams(api: FastAPI) -> FastAPI:
    """Mount the server at `/`, and at `/disorder` with streams that reorder and repeat events."""
    outer = FastAPI()
    outer.state.server_context = api.state.server_context
    outer.mount("/disorder", FaultyStreams(api, reorder_and_repeat))
    outer.mount("/", api)
    return outer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    place = tmp_path_factory.mktemp("server")
    with run_server(
        place, worker=True, app=make_spec_app(place), around=with_faulty_streams
    ) as live_server:
        yield live_server


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as live_server:
        yield live_server


@pytest.fixture
def proxy(server: LiveServer) -> Iterator[Proxy]:
    """A TCP proxy to the server, whose connections can be cut."""
    with Proxy(server.url) as live_server:
        yield live_server


def read(web: httpx.Client, job_id: str, last: str | None = None) -> list[SseMessage]:
    """Return the messages of a stream after the event `last`, until its end."""
    headers = STREAM | ({} if last is None else {"Last-Event-ID": last})
    with web.stream("GET", f"/api/jobs/{job_id}/events", headers=headers) as response:
        return read_messages(response)


@contextmanager
def reading(web: httpx.Client, url: str, last: str | None = None) -> Iterator[Iterator[SseMessage]]:
    """Yield an iterator of the events of a stream that may break."""
    headers = STREAM | ({} if last is None else {"Last-Event-ID": last})
    with web.stream("GET", url, headers=headers) as response:
        yield (message for message in messages(response) if isinstance(message, SseMessage))


def run_to_end(
    web: httpx.Client, task: str, **arguments: Any
) -> tuple[dict[str, Any], list[SseMessage]]:
    """Run a job to its end; return it and the messages of its stream."""
    job = enqueue(web, task, **arguments)["id"]
    found = read(web, job)
    return web.get(f"/api/jobs/{job}").json(), found


def job_at_40_percent(web: httpx.Client, tmp_path: Path) -> str:
    """Run a job with files up to 40 %; it continues when `tmp_path / "gate"` exists."""
    job: str = enqueue(web, "video", gate=str(tmp_path / "gate"))["id"]
    until(lambda: web.get(f"/api/jobs/{job}").json()["percent"] == 40, "the job is at 40 %")
    return job


def job_directories(server: LiveServer, job: str) -> list[str]:
    """Return the directories of a job."""
    return [str(server.app._workspaces.data / kind / job) for kind in ("temp", "proxy")]


def percents(found: list[SseMessage]) -> list[int]:
    """Return the reported percents in order."""
    result = (item.data.get("progressPct", item.data.get("percent")) for item in found)
    return [percent for percent in result if percent is not None]
