"""The command in a pseudo-terminal of a given width."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from windlass.cli.terminal import span


@pytest.mark.parametrize("columns", [40, 100])
def test_watch_shows_a_progress_bar_that_fits_the_terminal(
    enqueue_job: Any, open_terminal: Any, columns: int
) -> None:
    terminal = open_terminal(columns, "jobs", "watch", enqueue_job("film", title="Sea"))
    assert terminal.end() == 0
    bars = [line for line in re.split(r"[\r\n]+", terminal.shown) if "━" in line]
    assert bars
    assert all(len(line) <= columns for line in bars)
    assert "succeeded" in bars[-1]
    assert "100%" in bars[-1]


def test_ctrl_c_stops_watching_and_not_the_job(
    enqueue_job: Any, run_cli: Any, open_terminal: Any
) -> None:
    job = enqueue_job("add", a=1, run=False)
    terminal = open_terminal(100, "jobs", "watch", job)
    terminal.read_until("queued ━")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "the job continues: windlass jobs watch" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert run_cli("jobs", "show", job, "--json").json["state"] == "queued"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0ms"), (0.25, "250ms"), (1, "1s"), (59.9, "59s"), (60, "1m"), (7200, "2h"),
     (200_000, "2d")],
)  # fmt: skip
def test_a_duration_is_formatted_in_its_largest_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text
