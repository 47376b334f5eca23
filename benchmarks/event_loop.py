"""The event loop of every asynchronous program here: uvloop, if it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - may be missing
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
