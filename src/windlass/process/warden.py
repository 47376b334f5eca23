"""A small process that outlives a worker briefly, to kill the process groups that it started.

Run as a script by path, with the standard library only. It reads lines on its input: `+n` adds
process group n, `-n` removes it. When the input closes, or the worker ends for any reason, it kills
every group and exits. It ignores signals of a terminal and of a service manager, because it must
end last. If the warden is killed, the worker starts another with its next update.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

INPUT = 0
POLL_INTERVAL = 1.0  # seconds between checks of the parent, without pidfd


def main(parent: int) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    _watch(parent, groups)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _watch(parent: int, groups: set[int]) -> None:
    """Update the groups until the parent has ended."""
    # A process that the worker forked may hold the input open, so the parent is watched, too.
    exit_fds = _exit_fds(parent)
    rest = b""
    while True:
        ready = select.select([INPUT, *exit_fds], [], [], None if exit_fds else POLL_INTERVAL)[0]
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


def _exit_fds(parent: int) -> list[int]:
    if sys.platform != "linux":
        return []
    try:
        exit_fd = os.pidfd_open(parent)
    except OSError:  # an old kernel; or the parent has ended, which the first check detects
        return []
    return [exit_fd] if os.getppid() == parent else []


if __name__ == "__main__":
    main(int(sys.argv[1]))
