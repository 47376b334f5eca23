"""Prints on a thread, so that output never blocks the caller.

A full pipe or a halted terminal blocks every writer. The shutdown of a worker must not block.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread

from windlass.cli import terminal

FLUSH_TIMEOUT = 1.0  # seconds


class BackgroundPrinter:
    """Prints messages in order on its own thread; `print_line` prints plain messages."""

    def __init__(self, print_line: Callable[[str], None] = terminal.info) -> None:
        self._print_line = print_line
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        Thread(target=self._run, name="windlass-output", daemon=True).start()

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            with contextlib.suppress(OSError, ValueError):  # the output may be closed
                call()

    def put(self, call: Callable[[], object]) -> None:
        self._calls.put(call)

    def print(self, message: str) -> None:
        self.put(partial(self._print_line, message))

    def warn(self, message: str) -> None:
        self.put(partial(terminal.warn, message))

    def error(self, message: str) -> None:
        self.put(partial(terminal.error, message))

    def flush(self) -> bool:
        """Wait briefly until all is printed; return whether it is."""
        flushed = Event()
        self.put(flushed.set)
        return flushed.wait(FLUSH_TIMEOUT)

    def exit_if_blocked(self, code: int) -> None:
        """End the process here if its output blocks: Python's exit would wait for it."""
        if not self.flush():
            os._exit(code)
