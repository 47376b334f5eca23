"""A server that is not ours is told to stop: what lasts has to end, or it waits for it for ever.

The servers of others wait for open requests before they tell an application that they stop, and a
stream is open for as long as its job runs. So whoever is mounted hears the signal, too.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def heed(stop: Callable[[], None]) -> None:
    """From now on, whoever handles a signal to stop does so after `stop` was asked for.

    Only where somebody handles them, and on the thread on which that can be done.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        before = signal.getsignal(number)
        if callable(before):
            signal.signal(number, _and_then(loop, stop, before))


def _and_then(
    loop: asyncio.AbstractEventLoop,
    stop: Callable[[], None],
    before: Callable[[int, FrameType | None], object],
) -> Callable[[int, FrameType | None], None]:
    def told(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)
        before(number, frame)

    return told
