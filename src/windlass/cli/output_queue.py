"""Speaking without waiting for whoever reads.

A pipe that nobody empties, or a terminal that was halted, takes no more after a while, and whoever
writes to it then waits for good. What ends a worker must not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread

from windlass.cli import terminal

LAST_WORDS = 1.0  # seconds


class Voice:
    """Says one thing after the other, on a thread of its own; `say` is how plain words are said."""

    def __init__(self, say: Callable[[str], None] = terminal.say) -> None:
        self._plainly = say
        self._words: SimpleQueue[Callable[[], object]] = SimpleQueue()
        Thread(target=self._speak, name="windlass-voice", daemon=True).start()

    def _speak(self) -> None:
        while True:
            word = self._words.get()
            with contextlib.suppress(OSError, ValueError):  # nobody may be there any more
                word()

    def do(self, word: Callable[[], object]) -> None:
        self._words.put(word)

    def say(self, message: str) -> None:
        self.do(partial(self._plainly, message))

    def warn(self, message: str) -> None:
        self.do(partial(terminal.warn, message))

    def complain(self, message: str) -> None:
        self.do(partial(terminal.complain, message))

    def finish(self) -> bool:
        """Wait a moment until all is said; whether it is."""
        said = Event()
        self.do(said.set)
        return said.wait(LAST_WORDS)

    def leave(self, code: int) -> None:
        """At the end of a process: end it here if Python, too, would wait for whoever reads."""
        if not self.finish():
            os._exit(code)
