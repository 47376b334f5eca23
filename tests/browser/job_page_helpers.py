"""What the tests of a job's page need: jobs that do what they are told, and a page to look at.

As a program it is a server to be killed: python -m tests.browser.job_page_helpers PLACE PORT
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

from tests.browser.page_helpers import Look, looking
from tests.server.conftest import exists, make_app, opened

from windlass import Context, Windlass
from windlass.server.config import Door, ServerConfig
from windlass.server.uvicorn_server import Server


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="cut", max_retries=0)
    async def cut(ctx: Context, gate: str) -> dict[str, str]:
        async def look() -> int:
            return 7

        ctx.stage("plan")
        await ctx.astep("look", look)
        ctx.stage("tts")
        ctx.progress(50, "half of the voices")
        ctx.log("voices are recorded")
        await ctx.flush()
        await opened(gate)
        ctx.stage("render")
        ctx.artifact("film", "https://example.com/film.mp4", 2048)
        return {"file": "film.mp4"}

    @app.task(name="forty", max_retries=0)
    async def forty(ctx: Context, gate: str) -> None:
        ctx.progress(40, "so far")
        await ctx.flush()
        await opened(gate)

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

    add_say(app)
    return app


def add_say(app: Windlass) -> None:
    @app.task(name="say", max_retries=0)
    async def say(ctx: Context, events: list[tuple[str, dict[str, Any]]], fail: str = "") -> Any:
        """Whatever it is told to say; `fail` is how it fails, if it does."""
        for kind, data in events:
            if kind == "stage":
                ctx.stage(data["name"])
                ctx.progress(10, data["message"])
            else:
                ctx.emit(kind, data)
        if fail:
            raise ValueError(fail)
        return [data for _, data in events]


class Watch(Look):
    """A look at the page of a job."""

    def show(self, job: str, query: str = "") -> None:
        self.move(f"jobs/{job}{query}")

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def tab(self, name: str) -> Any:
        return self.page.get_by_role("tab", name=name, exact=True)

    @property
    def lines(self) -> Any:
        return self.page.locator(".log-line")

    @property
    def now(self) -> Any:
        return self.page.locator(".how-far")

    def line(self, text: str) -> Any:
        return self.page.locator(".log-lines .text").get_by_text(text, exact=True)

    def downloaded(self) -> list[str]:
        """All lines of the log, without their times."""
        with self.page.expect_download() as download:
            self.button("Download the log as text").click()
        text = Path(download.value.path()).read_text()
        return [line.partition(" ")[2] for line in text.splitlines()]


@contextmanager
def watching(browser: Any, url: str, job: str, query: str = "", **more: Any) -> Iterator[Watch]:
    """The page of a job; at the end nothing was complained of."""
    with looking(browser, url, f"jobs/{job}{query}", **more) as look:
        yield Watch(look.page, look.url, look.said)


class Killable:
    """A server in a process of its own, always on the same port."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._place = place

    def prepare(self) -> None:
        """All but the socket: to come back, it only has to listen."""
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
        api = make(Path(sys.argv[1])).asgi(ServerConfig(door=Door.LOCAL))
        sys.stdin.readline()  # until it is wanted
        started = functools.partial(print, flush=True)
        await Server(api, "127.0.0.1", int(sys.argv[2]), started=started).serve()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
