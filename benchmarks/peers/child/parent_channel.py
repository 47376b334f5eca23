"""Pipes between a measured process and the bench: events on stdout, the start signal on stdin."""

from __future__ import annotations

import json
import os
import signal
import sys
from threading import Event, Thread
from typing import Any


def send_event(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class ParentChannel:
    """Stdin from the bench: carries the start signal, and its end stops this process."""

    def __init__(self) -> None:
        self._started = Event()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            self._started.set()
        os.kill(os.getpid(), signal.SIGTERM)
        self._started.set()  # a blocked wait would keep the event loop from handling the signal

    def wait(self) -> None:
        """Wait for the start signal."""
        self._started.wait()
