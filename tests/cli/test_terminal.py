"""The command in a real terminal: a pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from windlass.cli.terminal import span


class Terminal:
    """A command running in a terminal, and what it has shown there."""

    def __init__(self, place: Path, columns: int, *words: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *words],
            cwd=place,
            env=environment | {"TERM": "xterm-256color"},
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        self._fd = ours
        self.shown = ""

    def read_until(self, wanted: str | None) -> str:
        """All that is shown up to these words; None: up to its end."""
        while wanted is None or wanted not in self.shown:
            try:
                data = os.read(self._fd, 65_536)
            except OSError:  # Linux says so when the other side is closed
                data = b""
            if not data:
                assert wanted is None, f"{wanted!r} never came: {self.shown}"
                break
            self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        return self.shown

    def end(self) -> int:
        self.read_until(None)
        os.close(self._fd)
        return self.process.wait(30)


@pytest.mark.parametrize("columns", [40, 100])
def test_watching_shows_a_bar_that_fills_and_fits(put: Any, place: Path, columns: int) -> None:
    terminal = Terminal(place, columns, "jobs", "watch", put("film", title="Sea"))
    assert terminal.end() == 0
    bars = [line for line in re.split(r"[\r\n]+", terminal.shown) if "━" in line]
    assert bars
    assert all(len(line) <= columns for line in bars)
    assert "succeeded" in bars[-1]
    assert "100%" in bars[-1]


def test_ctrl_c_stops_the_watching_and_not_the_job(put: Any, ask: Any, place: Path) -> None:
    job = put("add", a=1, run=False)
    terminal = Terminal(place, 100, "jobs", "watch", job)
    terminal.read_until("queued ━")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "the job goes on: windlass jobs watch" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert ask("jobs", "show", job, "--json").json["state"] == "queued"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0ms"), (0.25, "250ms"), (1, "1s"), (59.9, "59s"), (60, "1m"), (7200, "2h"),
     (200_000, "2d")],
)  # fmt: skip
def test_a_length_of_time_is_told_in_its_largest_unit(seconds: float, said: str) -> None:
    assert span(seconds) == said
