"""The first lines of a child process: die with the parent, find the same modules, begin.

Run as a script, by path and with the standard library alone, because the parent's import path is
not known before its first message: {path, argv, module}. `main` of that module gets the socket.
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the module decides, once it is loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the worker, who decides for us
    _die_with(parent)
    end = socket(fileno=descriptor)
    end.set_inheritable(False)
    size = int.from_bytes(end.recv(4, MSG_WAITALL), "big")
    begin = json.loads(end.recv(size, MSG_WAITALL)) if size else None
    if begin is None:
        return  # nobody is there any more
    sys.path[:] = begin["path"]
    sys.argv[:] = begin["argv"]
    importlib.import_module(begin["module"]).main(end)


def _die_with(parent: int) -> None:
    """Linux kills us when the thread that started us ends; elsewhere the socket's end tells."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415 - a Python may be built without it; the warden remains

            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before that was set
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
