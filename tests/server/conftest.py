"""A server on a real socket with a SQLite file, and HTTP clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from windlass import Context, Windlass, WorkerConfig, fixed
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.context import ServerContext
from windlass.server.uvicorn_server import UvicornServer
from windlass.worker import Worker

STREAM = {"Accept": "text/event-stream"}
WAIT_TIMEOUT = 20.0


def exists(path: str) -> bool:
    return Path(path).exists()


async def wait_for_file(gate: str) -> None:
    """Wait until a test creates this file, from another thread or process."""
    while not exists(gate):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def make_app(directory: Path, url: str | None = None) -> Windlass:
    """Create an app with the tasks of the tests; on a SQLite file unless `url` is given."""
    app = Windlass(url or f"sqlite:///{directory / 'jobs.db'}", data=directory / "data")

    @app.task(name="add")
    async def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task(name="film")
    async def film(ctx: Context, gate: str, lines: int = 3) -> dict[str, str]:
        ctx.stage("plan")
        for number in range(lines):
            ctx.log(f"line {number}")
            await ctx.flush()
        ctx.artifact("film", "file:///film.mp4", 7)
        await wait_for_file(gate)
        ctx.stage("render")
        ctx.progress(50, "half")
        return {"file": "film.mp4"}

    @app.task(name="broken", max_retries=1, backoff=fixed(0))
    async def broken(why: str) -> None:
        raise ValueError(why)

    @app.task(name="stepped", max_retries=0)
    async def stepped(ctx: Context, success_file: str) -> str:
        async def piece() -> int:
            return 1

        await ctx.astep("first", piece)
        if not exists(success_file):
            raise RuntimeError("the success file is missing")
        return "done"

    return app


@dataclass
class LiveServer:
    """A server in a thread. `stop` shuts it down like a signal."""

    app: Windlass
    url: str = ""
    uvicorn: UvicornServer = field(init=False)
    workers: list[Worker] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(init=False)
    thread: Thread = field(init=False)

    @property
    def context(self) -> ServerContext:
        context: ServerContext = self.uvicorn.config.app.state.server_context  # type: ignore[union-attr]
        return context

    def client(
        self, key: str | None = None, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Client:
        headers = {} if headers is None else dict(headers)
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=WAIT_TIMEOUT, verify=False, **more
        )

    def key(self, *roles: Role, owner: str | None = None, team: str | None = None) -> str:
        return self.key_and_id(*roles, owner=owner, team=team)[0]

    def key_and_id(
        self, *roles: Role, owner: str | None = None, team: str | None = None
    ) -> tuple[str, str]:
        async def make() -> tuple[str, str]:
            keys = ApiKeys(self.app.client().store)
            key, token = await keys.create("test", roles, owner=owner, team=team)
            return token, key.id

        return self.app.sync.call(make())

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self.thread.join(WAIT_TIMEOUT)
        assert not self.thread.is_alive()


@contextmanager
def run_server(
    directory: Path,
    config: ServerConfig | None = None,
    *,
    worker: bool = False,
    app: Windlass | None = None,
    around: Callable[[FastAPI], FastAPI] = lambda api: api,
    grace: float = 5,
) -> Iterator[LiveServer]:
    """Run a server inside the block. `around` may wrap the application."""
    server = LiveServer(make_app(directory) if app is None else app)
    listening = Event()

    def started(url: str) -> None:
        server.url = url
        listening.set()

    async def main() -> None:
        server.loop = asyncio.get_running_loop()
        api = server.app.asgi(config or ServerConfig(auth=AuthMode.LOCAL))
        server.uvicorn = UvicornServer(around(api), "127.0.0.1", 0, grace=grace, on_started=started)
        tasks = []
        if worker:
            server.workers.append(
                server.app.worker(WorkerConfig(poll_interval=0.02, sweep_interval=0.05, grace=0))
            )
            tasks = [asyncio.create_task(item.run()) for item in server.workers]
        await server.uvicorn.serve()
        for item in server.workers:
            item.stop()
        await asyncio.gather(*tasks)
        await server.app.aclose()

    server.thread = Thread(target=lambda: asyncio.run(main()))
    server.thread.start()
    try:
        assert listening.wait(WAIT_TIMEOUT)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server without keys, shared by the tests of a file: a start takes half a second."""
    with run_server(tmp_path_factory.mktemp("server")) as live_server:
        yield live_server


@pytest.fixture(scope="module")
def server_with_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server without keys, with a worker in its process."""
    with run_server(tmp_path_factory.mktemp("working"), worker=True) as live_server:
        yield live_server


@dataclass(frozen=True)
class SseMessage:
    """One message of a stream, parsed like in a browser."""

    type: str
    data: Any
    id: str | None = None

    @property
    def seq(self) -> int:
        assert self.id is not None
        return int(self.id.rpartition("-")[2])


def messages(response: httpx.Response) -> Iterator[SseMessage | str]:
    """Yield the messages of a stream as they arrive; a comment as text."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            yield line[1:].strip()
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "data" in fields:
                yield SseMessage(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}


def read_messages(response: httpx.Response) -> list[SseMessage]:
    return [message for message in messages(response) if isinstance(message, SseMessage)]


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition holds; fail after WAIT_TIMEOUT."""
    end = time.monotonic() + WAIT_TIMEOUT
    pause = 0.005
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.05)
    return found


def enqueue(client: httpx.Client, task: str, options: dict[str, Any] | None = None,
            **arguments: Any) -> dict[str, Any]:  # fmt: skip
    response = client.post(
        "/api/jobs", json={"task": task, "arguments": arguments, **(options or {})}
    )
    assert response.status_code in {200, 201}, response.text
    found: dict[str, Any] = response.json()
    return found


def wait_for(client: httpx.Client, job_id: str, *states: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = client.get(f"/api/jobs/{job_id}").json()
        return job if job["state"] in states else None

    found: dict[str, Any] = until(look, f"{job_id} is {states}")
    return found
