"""Queues: list, pause, resume."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from windlass.core.size_limits import MAX_NAME, check_text
from windlass.schemas.queues import PausedView, Queues
from windlass.server.context import Ctx

QueueName = Annotated[str, Path(description="Name of the queue.")]


async def list_queues(ctx: Ctx) -> Queues:
    """List queues with unfinished jobs, paused queues, and recently active queues."""
    return Queues.of(await ctx.client.queues())


async def pause(ctx: Ctx, queue: QueueName) -> PausedView:
    """Pause a queue: its jobs are not claimed; running jobs continue."""
    return await _set_paused(ctx, queue, paused=True)


async def resume(ctx: Ctx, queue: QueueName) -> PausedView:
    """Resume a paused queue."""
    return await _set_paused(ctx, queue, paused=False)


async def _set_paused(ctx: Ctx, queue: str, *, paused: bool) -> PausedView:
    check_text("the name of the queue", queue, MAX_NAME)
    await ctx.audit("pause queue" if paused else "resume queue", queue)
    await ctx.client.pause([queue], paused=paused)
    return PausedView(name=queue, paused=paused)
