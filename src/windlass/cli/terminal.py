"""Speaking to people and to scripts: colours, times, JSON, messages and exit codes."""

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
NARROW = 80
RICH_PIPE, PIPE = 80, 200  # columns
COLOURS = {
    State.CREATED: "dim",
    State.QUEUED: "cyan",
    State.RUNNING: "blue",
    State.RETRYING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELED: "magenta",
}
_STEPS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def out() -> Console:
    """Made when asked, because a test or a pipe may have replaced the stream.

    A pipe has no width, for which rich takes 80; nothing that goes into one needs to be cut. Names
    have colons: `queue:x:` is no picture.
    """
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False, emoji=False)
    if not console.is_terminal and console.width == RICH_PIPE:
        console.width = PIPE
    return console


def err() -> Console:
    """Lines are broken between words for people, and left whole for a file."""
    whole = not sys.stderr.isatty()
    return Console(file=sys.stderr, highlight=False, soft_wrap=whole, emoji=False)


def _unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def forgive() -> None:
    """A terminal that cannot show a character shows another instead; nothing fails for that."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(message: str) -> None:
    err().print(escape(message))


def warn(message: str) -> None:
    err().print(f"[yellow]warning:[/] {escape(message)}")


def complain(message: str) -> None:
    err().print(f"[red]error:[/] {escape(message)}")


def exit_code(error: WindlassError) -> int:
    match error:
        case StoreError():
            return UNAVAILABLE
        case ConfigurationError() | InvalidArgumentError() | TooLargeError():
            return USAGE
        case _:
            return FAILED


def print_json(value: Any, *, line: bool = False) -> None:
    """For scripts: never wrapped, never coloured. A stream has one value per line."""
    text = json.dumps(value, ensure_ascii=not _unicode(), indent=None if line else 2)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def plain(value: Any) -> str:
    """A value in one line: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table(*columns: str) -> Table:
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="ellipsis", no_wrap=True)
    return made


def jobs(number: int, *, capped: bool = False) -> str:
    if capped:
        return f"{number:,}+ jobs"
    return "1 job" if number == 1 else f"{number:,} jobs"


def state(value: State) -> str:
    return f"[{COLOURS[value]}]{value}[/]"


def iso(instant: Instant | None) -> str | None:
    return None if instant is None else to_datetime(instant).isoformat().replace("+00:00", "Z")


def clock(instant: Instant) -> str:
    """The local time of day, for log lines."""
    return to_datetime(instant).astimezone().strftime("%H:%M:%S.%f")[:-3]


def span(seconds: float) -> str:
    """A length of time in its largest whole unit."""
    for unit, size in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, round(seconds * 1000))}ms"


def ago(instant: Instant) -> str:
    seconds = (SystemClock().now() - instant) / SECOND
    return f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"
