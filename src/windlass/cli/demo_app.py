"""The app that `windlass dev` runs when it is given none: one task with something to see."""

from __future__ import annotations

import asyncio

from windlass.app import Windlass
from windlass.client import EnqueueOptions
from windlass.worker import Context

URL = "sqlite:///windlass-demo.db"  # of its own: a demo has no business among real jobs
STAGES = ("plan", "tts", "visuals", "compose", "render")
STEPS = 8


def demo_app(pace: float = 0.2) -> Windlass:
    """`pace` is the length of each small step, in seconds."""
    app = Windlass(URL)

    @app.task(name="demo.film", max_retries=3)
    async def film(ctx: Context, title: str) -> dict[str, str]:
        """Pretend to make a film, stage by stage."""
        for stage in STAGES:
            ctx.stage(stage)
            for step in range(1, STEPS + 1):
                await asyncio.sleep(pace)
                ctx.progress(100 * step // STEPS, f"{stage} of {title!r}")
        return {"file": f"{title}.mp4"}

    return app


async def enqueue_demo(app: Windlass) -> None:
    """One job; not another while it is under way."""
    spec = app.tasks.get("demo.film")
    assert spec is not None
    options = EnqueueOptions(unique_key="demo")
    await app.aenqueue_many([app.prepare(spec, ("The sea",), {}, options)])


WELCOME = f"""\
This is a demo: a job that pretends to make a film, in ./windlass-demo.db.
Your own app: windlass dev module:app. In another terminal, meanwhile:
  windlass jobs list --url {URL}
  windlass jobs why ID --url {URL}"""
