"""The process groups that must not outlive this process, and the warden that sees to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_WARDEN = Path(__file__).with_name("warden.py")


class Groups:
    """The warden starts with the first group, and again if somebody killed it."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._warden: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        self._groups.add(group)
        if not self._told(f"+{group}\n"):
            self._start()

    def remove(self, group: int) -> None:
        """Before its leader is reaped: after that the number may be somebody else's."""
        self._groups.discard(group)
        if not self._told(f"-{group}\n") and self._groups:
            self._start()

    def _told(self, line: str) -> bool:
        if self._warden is None:
            return False
        try:
            self._write(line)
        except BrokenPipeError:
            self._let_go()
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
        """End the warden. The groups are in nobody's care from now on, so end them first."""
        if self._warden is not None:
            self._let_go()

    def _let_go(self) -> None:
        warden, self._warden = self._warden, None
        assert warden is not None
        assert warden.stdin is not None
        warden.kill()
        warden.stdin.close()
        warden.wait()
