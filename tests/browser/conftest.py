"""Fixtures: tabs of a real browser, on pages of a real server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.server.conftest import exists, make_app, until

from windlass import Context, Windlass
from windlass.server import javascript_client

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = Path(javascript_client.__file__).parent / "pages"
FLAGS = (
    "--no-sandbox",  # Chromium's sandbox does not run as root, as in containers
    "--disable-gpu",  # else machines without a GPU emulate one
    "--process-per-site",  # tabs of a server share a process
)
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; worker-src 'self'; img-src data:"
)


@pytest.fixture(scope="module")  # a longer scope would keep its event loop running in other tests
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="there is no playwright: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        found.new_context()  # shared by all tests
        yield found
        found.close()


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="talk")
    async def talk(ctx: Context, gate: str) -> None:
        """Report progress until the gate file exists."""
        percent = 0.0
        while not exists(gate):
            percent += (100 - percent) / 100
            ctx.progress(percent, f"at {percent:.2f} %")
            await ctx.flush()
            await asyncio.sleep(0.01)

    return app


class Strict(StaticFiles):
    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers["Content-Security-Policy"] = POLICY
        return response


@dataclass
class Counted:
    """Requests by path."""

    paths: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # with 401

    def around(self, api: FastAPI) -> FastAPI:
        """Mount the server beside a page with a strict content security policy."""
        outer = FastAPI()
        outer.state.server_context = api.state.server_context
        outer.mount("/page", Strict(directory=Path(__file__).parent / "page", html=True))
        outer.mount("/assets/test/client", Strict(directory=javascript_client.folder()))
        outer.mount("/assets/test", Strict(directory=PAGES))
        outer.mount("/", self._counting(api))
        return outer

    def _counting(self, api: ASGIApp) -> ASGIApp:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = str(scope.get("path", ""))
            self.paths.append(path)

            async def respond(message: Message) -> None:
                if message.get("status") == 401:
                    self.refused.append(path)
                await send(message)

            await api(scope, receive, respond)

        return app


@dataclass
class Tab:
    page: Any
    console: list[str] = field(default_factory=list)

    def get(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def until(self, expression: str) -> Any:
        """Poll from here: waiting inside the page would need `eval` there."""
        return until(lambda: self.get(expression), expression)

    def seqs(self, job: str) -> list[int]:
        found: list[int] = self.get(f"page.jobs['{job}'].seqs")
        return found


class Window:
    """A browser context: its tabs share cookies and workers."""

    def __init__(self, context: Any, url: str) -> None:
        self.context = context
        self.url = url

    def tab(self) -> Tab:
        one = Tab(self.context.new_page())
        one.page.on("console", lambda entry: one.console.append(f"{entry.type}: {entry.text}"))
        one.page.on("pageerror", lambda error: one.console.append(f"uncaught: {error}"))
        one.page.goto(f"{self.url}/page/")
        one.until("window.page !== undefined")
        return one


@contextmanager
def window(browser: Any, url: str, script: str | None = None) -> Iterator[Window]:
    """Open a browser context; `script` runs first in each page."""
    context = browser.new_context()
    if script is not None:
        context.add_init_script(script)
    try:
        yield Window(context, url)
    finally:
        context.close()
