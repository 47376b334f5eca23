"""The demo app of `windlass dev`: one task with visible progress."""

from __future__ import annotations

import asyncio

from windlass.app import Windlass
from windlass.options import EnqueueOptions
from windlass.worker import Context

URL = "sqlite:///windlass-demo.db"  # separate from real jobs
STAGES = ("plan", "tts", "visuals", "compose", "render")
STEPS = 8


def demo_app(pace: float = 0.2) -> Windlass:
    """Create the demo app; `pace` is the length of each step in seconds."""
    app = Windlass(URL)

    @app.task(name="demo.film", max_retries=3)
    async def film(ctx: Context, title: str) -> dict[str, str]:
        """Simulate rendering a film, stage by stage."""
        for stage in STAGES:
            ctx.stage(stage)
            for step in range(1, STEPS + 1):
                await asyncio.sleep(pace)
                ctx.progress(100 * step // STEPS, f"{stage} of {title!r}")
        return {"file": f"{title}.mp4"}

    return app


async def enqueue_demo(app: Windlass) -> None:
    """Enqueue one job, unless one is active."""
    spec = app.tasks.get("demo.film")
    assert spec is not None
    options = EnqueueOptions(unique_key="demo")
    await app.aenqueue_many([app.prepare(spec, ("The sea",), {}, options)])


WELCOME = f"""\
Demo: one job that simulates rendering a film, in ./windlass-demo.db.
Run your own app with: windlass dev module:app. In another terminal, try:
  windlass jobs list --url {URL}
  windlass jobs why ID --url {URL}"""
