"""Screenshots of the dashboard for docs/images: every page, light, dark and on a phone.

    python docs/pictures.py

Runs one simulated hour of a sample application with a real server, a worker and Chromium.
"""

from __future__ import annotations

import asyncio
import linecache
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from playwright.async_api import Page, async_playwright

from windlass import Context, Windlass, WorkerConfig, fixed
from windlass.core.clock import SECOND, Instant
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.uvicorn_server import UvicornServer

IMAGES = Path(__file__).parent / "images"
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
THEMES: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
}
FILMS = ("harbor", "glacier", "night-train", "orchard", "lighthouse", "market", "dunes", "ferry")
FAILED = JobQuery(states=frozenset({State.FAILED}), limit=1)
PAST = 3500.0  # seconds of simulated work before the screenshots
RATE = 80.0  # speed of the simulated clock
LEASE = 1200.0  # seconds; long, because the clock runs fast


class FastClock:
    """A clock that starts an hour ago and runs fast until it reaches the current time."""

    def __init__(self) -> None:
        self.started = time.time()

    def now(self) -> Instant:
        now = time.time()
        return int(min(now, self.started - PAST + (now - self.started) * RATE) * SECOND)

    @property
    def pace(self) -> float:
        """Real seconds per second of work."""
        elapsed = time.time() - self.started
        return 1.0 if elapsed * (RATE - 1) >= PAST else 1 / RATE


class Studio:
    """The sample application, with tasks that take time by its clock."""

    def __init__(self, directory: Path) -> None:
        self.clock = FastClock()
        self.app = Windlass(
            f"sqlite:///{directory / 'jobs.db'}",
            clock=self.clock,
            data=directory / "data",
            stages={
                "probe": ("prepare", (0, 10)),
                "transcode": ("work", (10, 90)),
                "package": ("finish", (90, 100)),
            },
        )
        self.random = random.Random(7)  # noqa: S311 - a fixed seed: the same screenshots each time
        app = self.app

        @app.task(name="film.fetch", queue="media")
        async def fetch(ctx: Context, film: str) -> str:
            """Fetch a film from the archive."""
            await self.work(ctx, "download", 4)
            return f"{film}.mov"

        @app.task(name="film.transcode", queue="media", max_retries=2)
        async def transcode(ctx: Context, film: str, height: Literal[360, 720, 1080] = 720) -> str:
            """Transcode a film."""
            for stage, parts in (("probe", 2), ("transcode", 120), ("package", 12)):
                ctx.stage(stage)
                await self.work(ctx, stage, parts)
            return f"{film}@{height}p.mp4"

        @app.task(name="film.publish", queue="default")
        async def publish(ctx: Context, parts: list[str], title: str) -> str:
            """Publish all sizes of a film."""
            await self.work(ctx, "upload", 3)
            return f"{title}: {len(parts)} sizes"

        @app.task(name="mail.send", queue="mail", max_retries=1, backoff=fixed(0))
        async def send(to: str, subject: str = "Your film is ready") -> str:
            """Send an email."""
            await self.sleep(0.3)
            if self.random.random() < 0.07:  # noqa: PLR2004
                raise ConnectionError("smtp.example.com refused the connection: 421 try later")
            return f"{subject}: {to}"

        @app.task(name="index.page", queue="default", max_retries=0)
        async def index(page: int) -> int:
            """Index a page for search."""
            await self.sleep(0.1)
            if page % 37 == 0:
                raise ValueError(f"page {page} has no text")
            return page

        @app.task(name="nightly.report", queue="default")
        async def report() -> str:
            return "fine"

        app.schedule("30 3 * * *", name="nightly report", tz="Europe/Berlin")(report)
        app.schedule(every="15m", name="scan for new films")(report)
        self.fetch, self.transcode, self.publish = fetch, transcode, publish
        self.send, self.index = send, index

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.clock.pace)

    async def work(self, ctx: Context, what: str, parts: int) -> None:
        for part in range(parts):
            await self.sleep(0.5)
            ctx.progress(100 * (part + 1) / parts, f"{what}: {part + 1} of {parts}")
            ctx.log(f"\x1b[32m{what}\x1b[0m frame {part * 240} of {parts * 240}")

    async def flow(self, film: str) -> str:
        flow = self.app.flow()
        source = flow.add(self.fetch, film)
        parts = flow.each(self.transcode, [(source.result, height) for height in (360, 720, 1080)])
        flow.add(self.publish, parts.results, title=film.title())
        return str((await flow.aenqueue()).id)

    async def run_past(self) -> None:
        """Enqueue an hour of jobs at a varying rate."""
        number = 0
        while self.clock.pace < 1:
            number += 1
            await self.index.aenqueue(page=number)
            if number % 4 == 0:
                await self.send.options(owner="ann").aenqueue(to=f"reader{number}@example.com")
            if number % 60 == 0:
                await self.flow(FILMS[number // 60 % len(FILMS)])
            await self.sleep(4 + 3 * math.sin(number / 40) + self.random.random())

    async def enqueue_current(self) -> tuple[str, str]:
        """Enqueue a flow and a running job, and return their ids."""
        flow = await self.flow("lighthouse")
        for film in FILMS[:6]:
            await self.transcode.options(owner="ben", tags=("film",)).aenqueue(film, height=1080)
        await self.send.options(delay="10m").aenqueue(to="ann@example.com")
        first = await self.transcode.options(priority=9, owner="ann").aenqueue("harbor")
        return flow, str(first.id)


async def take_screenshots(studio: Studio, url: str) -> None:
    await studio.run_past()
    await asyncio.sleep(3)
    flow, job = await studio.enqueue_current()
    await asyncio.sleep(2)
    failed = (await studio.app.client().store.find(FAILED)).rows[0].id
    pages = {
        "overview": "", "jobs": "jobs", "job": f"jobs/{job}", "failed-job": f"jobs/{failed}",
        "failures": "failures", "flows": "flows", "flow": f"flows/{flow}",
        "schedules": "schedules", "workers": "workers",
        "enqueue": "enqueue?task=film.transcode", "audit": "audit", "keys": "keys",
    }  # fmt: skip
    async with async_playwright() as play:
        browser = await play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--hide-scrollbars"]
        )
        for theme, options in THEMES.items():
            context = await browser.new_context(**options)
            page = await context.new_page()
            for name, path in pages.items():
                await page.goto(f"{url}/{path}")
                await wait_until_rendered(page)
                await page.screenshot(path=IMAGES / f"{name}-{theme}.png")
        await browser.close()


async def wait_until_rendered(page: Page) -> None:
    await page.locator("main h1").first.wait_for()
    await page.locator(".skeleton").first.wait_for(state="detached")
    await page.wait_for_timeout(1200)  # charts and logs render


async def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        studio = Studio(Path(directory))
        await with_server(studio, lambda url: take_screenshots(studio, url))


async def with_server(studio: Studio, action: Callable[[str], Awaitable[None]]) -> None:
    """Run `action` with the URL of a server, while a worker runs."""
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    api = studio.app.asgi(ServerConfig(auth=AuthMode.LOCAL))
    server = UvicornServer(
        api, "127.0.0.1", 0, on_started=listening.set_result, handle_signals=False
    )
    worker = studio.app.worker(
        WorkerConfig(
            name="studio-1", queues={"media": 3, "default": 4, "mail": 2}, grace=0, lease=LEASE
        )
    )
    tasks = [asyncio.create_task(server.serve()), asyncio.create_task(worker.run())]
    try:
        await action(await listening)
    finally:
        server.should_exit = True
        worker.stop()
        await asyncio.gather(*tasks)
        await studio.app.aclose()


def load_from(path: str) -> ModuleType:
    """Load this module as if from another path: tracebacks in the screenshots show it."""
    source = Path(__file__).read_text()
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = sys.modules["tasks"] = ModuleType("tasks")
    module.__file__ = __file__
    exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - this file
    return module


if __name__ == "__main__":
    sys.exit(asyncio.run(load_from("/app/tasks.py").main()))
