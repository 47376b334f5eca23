"""A child process for tests: runs one command after another."""

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

from windlass.process.parent_connection import ParentConnection, StopRequested

IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"


def main(connection: socket) -> None:
    with ParentConnection(connection) as parent:
        try:
            while True:
                message = parent.next()
                result = COMMANDS[message["do"]](parent, message.get("with"))
                parent.send({"did": message["do"], "result": result})
        except StopRequested:
            parent.send({"did": "stop"})


def request(parent: ParentConnection, argument: Any) -> Any:
    return parent.request({"want": argument}).result()


def start(parent: ParentConnection, argument: Any) -> int:
    """Start a grandchild, which ignores SIGTERM."""
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", IGNORES_SIGTERM]).pid


def fork(parent: ParentConnection, argument: Any) -> int:
    """Fork a process that keeps the child's end of the channel."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def sleep(parent: ParentConnection, argument: Any) -> None:
    parent.send({"at": "sleep"})
    time.sleep(600)


def hold(parent: ParentConnection, argument: Any) -> None:
    hold_the_interpreter(argument)


COMMANDS: dict[str, Callable[[ParentConnection, Any], Any]] = {
    "repeat": lambda _, argument: argument,
    "pid": lambda _, argument: os.getpid(),
    "request": request,
    "start": start,
    "fork": fork,
    "sleep": sleep,
    "hold": hold,
    "die": lambda _, argument: os.kill(os.getpid(), argument),
}
