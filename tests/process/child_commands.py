"""A child process for tests: does what it is told, one thing after another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from socket import socket
from typing import Any

from tests.process.process_table import hold_the_interpreter

from windlass.process.parent import Parent, Stopped

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"


def main(end: socket) -> None:
    with Parent(end) as parent:
        try:
            while True:
                told = parent.next()
                said = ACTS[told["do"]](parent, told.get("with"))
                parent.say({"did": told["do"], "said": said})
        except Stopped:
            parent.say({"did": "stop"})


def ask(parent: Parent, given: Any) -> Any:
    return parent.ask({"want": given}).result()


def start(parent: Parent, given: Any) -> int:
    """A grandchild, which ignores what it can."""
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", STUBBORN]).pid


def fork(parent: Parent, given: Any) -> int:
    """One that keeps our end of the channel."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def sleep(parent: Parent, given: Any) -> None:
    parent.say({"at": "sleep"})
    time.sleep(600)


def hold(parent: Parent, given: Any) -> None:
    hold_the_interpreter(given)


ACTS: dict[str, Callable[[Parent, Any], Any]] = {
    "repeat": lambda _, given: given,
    "pid": lambda _, given: os.getpid(),
    "ask": ask,
    "start": start,
    "fork": fork,
    "sleep": sleep,
    "hold": hold,
    "die": lambda _, given: os.kill(os.getpid(), given),
}
