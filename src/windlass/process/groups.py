"""Process groups that must not outlive this process, and the warden that ensures it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_WARDEN = Path(__file__).with_name("warden.py")


class ProcessGroups:
    """Starts the warden with the first group, and again if it was killed."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._warden: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        self._groups.add(group)
        if not self._send(f"+{group}\n"):
            self._start()

    def remove(self, group: int) -> None:
        """Remove a group. Call it before the leader is reaped: afterwards its id may be reused."""
        self._groups.discard(group)
        if not self._send(f"-{group}\n") and self._groups:
            self._start()

    def _send(self, line: str) -> bool:
        if self._warden is None:
            return False
        try:
            self._write(line)
        except BrokenPipeError:
            self._stop_warden()
            return False
        return True

    def _start(self) -> None:
        self._warden = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", str(_WARDEN), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._write("".join(f"+{group}\n" for group in self._groups))

    def _write(self, text: str) -> None:
        assert self._warden is not None
        assert self._warden.stdin is not None
        self._warden.stdin.write(text.encode())

    @property
    def warden(self) -> int | None:
        return None if self._warden is None else self._warden.pid

    def close(self) -> None:
        """Stop the warden. End the groups first: nothing kills them afterwards."""
        if self._warden is not None:
            self._stop_warden()

    def _stop_warden(self) -> None:
        warden, self._warden = self._warden, None
        assert warden is not None
        assert warden.stdin is not None
        warden.kill()
        warden.stdin.close()
        warden.wait()
