"""Tasks whose jobs the JavaScript tests follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from tests.server.conftest import exists, make_app, wait_for_file

from windlass import Context, Windlass


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="video")
    async def video(ctx: Context, gate: str) -> None:
        (ctx.workspace / "part.tmp").touch()
        (ctx.proxy / "part.mp4").touch()
        for percent in (10, 30, 20, 40):
            ctx.progress(percent)
            await ctx.flush()
        await wait_for_file(gate)
        for percent in (60, 90):
            ctx.progress(percent)
            ctx.log(f"at {percent} %: é€🏗")
            await ctx.flush()

    @app.task(name="chatter")
    async def chatter(ctx: Context, gate: str) -> int:
        lines = 0
        while not exists(gate):
            lines += 1
            ctx.log(f"line {lines}")
            await ctx.flush()
        return lines

    return app


def log_of(web: httpx.Client, job_id: str) -> list[dict[str, Any]]:
    """Return all events of a job from the JSON pages."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": 1000}
    while True:
        page = web.get(f"/api/jobs/{job_id}/events", params=params).json()
        found += [{key: event[key] for key in ("id", "type", "data")} for event in page["events"]]
        if page["ended"]:
            return found
        params["lastEventId"] = page["cursor"]
