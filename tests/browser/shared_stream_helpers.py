"""Helpers for the shared stream tests: tabs of one browser, and a count of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.browser.conftest import PAGES
from tests.server.conftest import exists, make_app, until

from windlass import Context, Windlass
from windlass.server import javascript_client

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; worker-src 'self'; img-src data:"
)


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


class StrictPolicyFiles(StaticFiles):
    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers["Content-Security-Policy"] = POLICY
        return response


@dataclass
class RequestCounter:
    """Requests by path."""

    paths: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # with 401

    def around(self, api: FastAPI) -> FastAPI:
        """Mount the server and a page with a strict content security policy."""
        outer = FastAPI()
        outer.state.server_context = api.state.server_context
        outer.mount("/page", StrictPolicyFiles(directory=Path(__file__).parent / "page", html=True))
        outer.mount("/assets/test/client", StrictPolicyFiles(directory=javascript_client.folder()))
        outer.mount("/assets/test", StrictPolicyFiles(directory=PAGES))
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
        tab = Tab(self.context.new_page())
        tab.page.on("console", lambda entry: tab.console.append(f"{entry.type}: {entry.text}"))
        tab.page.on("pageerror", lambda error: tab.console.append(f"uncaught: {error}"))
        tab.page.goto(f"{self.url}/page/")
        tab.until("window.page !== undefined")
        return tab


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
