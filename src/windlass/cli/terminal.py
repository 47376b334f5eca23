"""Terminal output: colors, times, JSON, messages and exit codes."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from windlass.core.clock import SECOND, Instant, SystemClock, to_datetime
from windlass.core.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StoreError,
    TooLargeError,
    WindlassError,
)
from windlass.core.job.state import State

FAILED = 1
USAGE = 2
UNAVAILABLE = 3
NARROW_WIDTH = 80
RICH_PIPE_WIDTH, PIPE_WIDTH = 80, 200  # columns
COLORS = {
    State.CREATED: "dim",
    State.QUEUED: "cyan",
    State.RUNNING: "blue",
    State.RETRYING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELED: "magenta",
}
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def out() -> Console:
    """Create the console for each use, because tests and pipes replace the stream.

    A pipe has no width and rich assumes 80; output to a pipe is not cut. Emoji are off, because
    names have colons: `queue:x:`.
    """
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False, emoji=False)
    if not console.is_terminal and console.width == RICH_PIPE_WIDTH:
        console.width = PIPE_WIDTH
    return console


def err() -> Console:
    """Create the console for messages; lines are wrapped only on a terminal."""
    is_file = not sys.stderr.isatty()
    return Console(file=sys.stderr, highlight=False, soft_wrap=is_file, emoji=False)


def _stdout_is_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def replace_unencodable() -> None:
    """Print a replacement for characters that the terminal cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def info(message: str) -> None:
    err().print(escape(message))


def warn(message: str) -> None:
    err().print(f"[yellow]warning:[/] {escape(message)}")


def error(message: str) -> None:
    err().print(f"[red]error:[/] {escape(message)}")


def exit_code(exception: WindlassError) -> int:
    match exception:
        case StoreError():
            return UNAVAILABLE
        case ConfigurationError() | InvalidArgumentError() | TooLargeError():
            return USAGE
        case _:
            return FAILED


def print_json(value: Any, *, line: bool = False) -> None:
    """Print JSON, never wrapped or colored; with `line`, one value per line."""
    text = json.dumps(value, ensure_ascii=not _stdout_is_utf8(), indent=None if line else 2)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def plain(value: Any) -> str:
    """Format a value in one line: text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table(*columns: str) -> Table:
    new = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        new.add_column(column, overflow="ellipsis", no_wrap=True)
    return new


def jobs(number: int, *, capped: bool = False) -> str:
    if capped:
        return f"{number:,}+ jobs"
    return "1 job" if number == 1 else f"{number:,} jobs"


def state(value: State) -> str:
    return f"[{COLORS[value]}]{value}[/]"


def iso(instant: Instant | None) -> str | None:
    return None if instant is None else to_datetime(instant).isoformat().replace("+00:00", "Z")


def clock(instant: Instant) -> str:
    """Format the local time of day, for log lines."""
    return to_datetime(instant).astimezone().strftime("%H:%M:%S.%f")[:-3]


def span(seconds: float) -> str:
    """Format a duration in its largest whole unit."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, round(seconds * 1000))}ms"


def ago(instant: Instant) -> str:
    seconds = (SystemClock().now() - instant) / SECOND
    return f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"
