"""A tiny process beside a worker that outlives it by a moment, to end what it started.

Run as a script, by path and with the standard library alone. It waits for lines on its input: `+n`
puts the process group n in its care, `-n` takes it out. When the input closes, or the process that
started it is gone in whatever way, it kills every group in its care and ends. It ignores the
signals of a terminal and of a service manager: it has to go last. If it is itself killed, the
worker starts another when it next has something to say.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

INPUT = 0
LOOK = 1.0  # seconds between two looks at the parent, where there is no way to be told


def main(parent: int) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    _watch(parent, groups)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _watch(parent: int, groups: set[int]) -> None:
    """Keep the groups up to date until the parent is gone."""
    # The input may be held open by a process that the worker forked: its end tells, too.
    end = _end_of(parent)
    rest = b""
    while True:
        ready = select.select([INPUT, *end], [], [], None if end else LOOK)[0]
        if INPUT in ready:
            data = os.read(INPUT, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                change = groups.add if line.startswith(b"+") else groups.discard
                change(int(line[1:]))
        elif ready or os.getppid() != parent:
            return


def _end_of(parent: int) -> list[int]:
    if sys.platform != "linux":
        return []
    try:
        end = os.pidfd_open(parent)
    except OSError:  # an old kernel; or it is gone, and then the first look tells
        return []
    return [end] if os.getppid() == parent else []


if __name__ == "__main__":
    main(int(sys.argv[1]))
