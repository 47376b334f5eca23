"""Helpers for the job page tests: tasks with scripted events, and the page.

As a program, a server that a test can kill: python -m tests.browser.job_page_helpers PLACE PORT
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser.page_helpers import DashboardPage, open_page
from tests.server.conftest import exists, make_app, wait_for_file

from windlass import Context, Windlass
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.uvicorn_server import UvicornServer


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="cut", max_retries=0)
    async def cut(ctx: Context, gate: str) -> dict[str, str]:
        async def inspect() -> int:
            return 7

        ctx.stage("plan")
        await ctx.astep("inspect", inspect)
        ctx.stage("tts")
        ctx.progress(50, "half of the voices")
        ctx.log("voices are recorded")
        await ctx.flush()
        await wait_for_file(gate)
        ctx.stage("render")
        ctx.artifact("film", "https://example.com/film.mp4", 2048)
        return {"file": "film.mp4"}

    @app.task(name="forty", max_retries=0)
    async def forty(ctx: Context, gate: str) -> None:
        ctx.progress(40, "so far")
        await ctx.flush()
        await wait_for_file(gate)

    @app.task(name="talk")
    async def talk(ctx: Context, gate: str) -> int:
        lines = 0
        while not exists(gate):
            lines += 1
            ctx.log(f"line {lines}")
            await ctx.flush()
            await asyncio.sleep(0.02)
        return lines

    @app.task(name="many")
    async def many(ctx: Context, count: int) -> None:
        for number in range(1, count + 1):
            ctx.log(f"line {number}")
            if number % 1000 == 0:
                await ctx.flush()

    add_emit(app)
    return app


def add_emit(app: Windlass) -> None:
    @app.task(name="emit", max_retries=0)
    async def emit(ctx: Context, events: list[tuple[str, dict[str, Any]]], fail: str = "") -> Any:
        """Emit the given events; fail with the message `fail`, if given."""
        for kind, data in events:
            if kind == "stage":
                ctx.stage(data["name"])
                ctx.progress(10, data["message"])
            else:
                ctx.emit(kind, data)
        if fail:
            raise ValueError(fail)
        return [data for _, data in events]


class JobPage(DashboardPage):
    """The page of a job."""

    def show(self, job: str, query: str = "") -> None:
        self.navigate(f"jobs/{job}{query}")

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def tab(self, name: str) -> Any:
        return self.page.get_by_role("tab", name=name, exact=True)

    @property
    def lines(self) -> Any:
        return self.page.locator(".log-line")

    @property
    def progress(self) -> Any:
        return self.page.locator(".job-progress")

    def line(self, text: str) -> Any:
        return self.page.locator(".log-lines .text").get_by_text(text, exact=True)

    def downloaded(self) -> list[str]:
        """Return all log lines without their times."""
        with self.page.expect_download() as download:
            self.button("Download log as text").click()
        text = Path(download.value.path()).read_text()
        return [line.partition(" ")[2] for line in text.splitlines()]


@contextmanager
def open_job(browser: Any, url: str, job: str, query: str = "", **more: Any) -> Iterator[JobPage]:
    """Open the page of a job; at the end, check the console."""
    with open_page(browser, url, f"jobs/{job}{query}", **more) as opened:
        yield JobPage(opened.page, opened.url, opened.console)


class KillableServer:
    """A server in its own process, always on the same port."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._place = place

    def prepare(self) -> None:
        """Start the process without listening, so that a restart is fast."""
        command = [
            sys.executable,
            "-m",
            "tests.browser.job_page_helpers",
            str(self._place),
            str(self.port),
        ]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._next = subprocess.Popen(command, env=env, text=True, **pipes)

    def start(self) -> None:
        process = self._next
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == self.url
        self._process = process

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    async def serve() -> None:
        api = make(Path(sys.argv[1])).asgi(ServerConfig(auth=AuthMode.LOCAL))
        sys.stdin.readline()  # waits for start()
        started = functools.partial(print, flush=True)
        await UvicornServer(api, "127.0.0.1", int(sys.argv[2]), on_started=started).serve()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
