"""Close event streams on SIGINT or SIGTERM when the app is mounted in another ASGI server.

Such servers wait for open requests before they shut down, and a stream lasts as long as its job.
So the app handles the signals, too.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def call_on_stop_signal(callback: Callable[[], None]) -> None:
    """Call `callback` on the event loop before the present handlers of stop signals run.

    Does nothing for signals without a handler, or outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, _chained(loop, callback, handler))


def _chained(
    loop: asyncio.AbstractEventLoop,
    callback: Callable[[], None],
    handler: Callable[[int, FrameType | None], object],
) -> Callable[[int, FrameType | None], None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(callback)
        handler(number, frame)

    return on_signal
