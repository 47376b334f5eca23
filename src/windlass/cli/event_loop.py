"""The event loop of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, fast: bool = False) -> T:
    """Run a coroutine; with `fast` on uvloop, if it is installed."""
    with asyncio.Runner(loop_factory=_uvloop_factory() if fast else None) as runner:
        return runner.run(work)


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional; its import takes 80 ms
    except ImportError:
        return None
    return uvloop.new_event_loop
