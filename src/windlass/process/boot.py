"""Entry script of a child process: ends with its parent, sets the import path, runs a module.

Run as a script by path, with the standard library only, because the parent's import path arrives
with its first message: {path, argv, module}. `main` of that module gets the socket.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from socket import MSG_WAITALL, socket

_SET_PARENT_DEATH_SIGNAL = 1


def main(descriptor: int, parent: int) -> None:
    # The module sets its own SIGTERM handler once it is loaded. The worker handles Ctrl-C.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent(parent)
    connection = socket(fileno=descriptor)
    connection.set_inheritable(False)
    size = int.from_bytes(connection.recv(4, MSG_WAITALL), "big")
    start = json.loads(connection.recv(size, MSG_WAITALL)) if size else None
    if start is None:
        return  # the parent closed the connection
    sys.path[:] = start["path"]
    sys.argv[:] = start["argv"]
    importlib.import_module(start["module"]).main(connection)


def _end_with_parent(parent: int) -> None:
    """On Linux, let the kernel kill this process when the thread that started it ends.

    Elsewhere, the end of the socket shows that the parent has ended.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 - optional in Python builds; the warden covers that case

            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent died before prctl
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
