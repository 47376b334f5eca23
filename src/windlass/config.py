"""Settings, and the only reader of the environment.

An argument wins over the environment (`WINDLASS_…`), the environment over `windlass.toml` (or
`[tool.windlass]` in `pyproject.toml`) in the working directory or the nearest one above it, and the
file over the default. What nobody gave and has no default is unset, which is no value at all.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from windlass.core.duration import seconds
from windlass.core.errors import ConfigurationError, InvalidArgumentError

DEFAULT_URL = "sqlite:///windlass.db"
DEFAULT_SLOTS = 10
DEFAULT_GRACE = 10.0
DEFAULT_DATA = "windlass-data"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8642
DAY = 86_400.0
FILE = "windlass.toml"
_PREFIX = "WINDLASS_"
_MAX_PORT = 65_535
_RELATIVE = re.compile(r"sqlite:///(?!/)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def store_url(argument: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Where the jobs are kept: the argument, WINDLASS_URL, windlass.toml, or ./windlass.db."""
    return argument or str(settings({}, environment)["url"].value)


def store_key(argument: str | None = None) -> str | None:
    """What opens a server that keeps the jobs: the argument, WINDLASS_KEY, or windlass.toml."""
    key: str | None = argument or settings()["key"].value
    return key


def data_directory(argument: Path | str | None = None) -> Path:
    """Where workspaces are: the argument, WINDLASS_DATA, windlass.toml, or ./windlass-data."""
    return Path(argument or settings()["data"].value).absolute()


# -- the settings


@dataclass(frozen=True, slots=True)
class Value:
    """One setting as it stands. `origin` says who set it; None is unset."""

    name: str
    value: Any
    origin: str

    @property
    def given(self) -> bool:
        """Whether somebody chose it, rather than nobody."""
        return self.origin not in {"default", "unset"}


class Settings:
    """Every setting, by name, with its origin."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values.values())


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{what} is {value!r}; it must be a text")
    return value


def _secret(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{what} must be a text")  # whatever it is, it is not shown
    return value


def _count(value: Any, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if isinstance(value, bool | float) or number < 1:
        raise InvalidArgumentError(f"{what} is {value!r}; it must be a whole number from 1 upward")
    return number


def _port(value: Any, what: str) -> int:
    try:
        number = -1 if isinstance(value, bool | float) else int(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= _MAX_PORT:
        raise InvalidArgumentError(f"{what} is {value!r}; it must lie between 0 and {_MAX_PORT}")
    return number


def _duration(value: Any, what: str) -> float:
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value.strip()):
        return float(value)  # the environment has no numbers
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{what} is {value!r}; write seconds or words")
    return seconds(value, what)


def _size(value: Any, what: str) -> int:
    """Bytes, or words such as "512M" and "2G" (of 1024, as memory is counted)."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    number = float(match[1]) * _UNITS[match[2].lower()] if match else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 1:
        raise InvalidArgumentError(f'{what} is {value!r}; write it as "512M" or "2G"')
    return int(number)


def _queues(value: Any, what: str) -> dict[str, int | None]:
    """`media=2,default`, or a table in TOML; None leaves the slots to `concurrency`."""
    if isinstance(value, Mapping):
        return {str(name): _count(slots, f"{name!r} of {what}") for name, slots in value.items()}
    found: dict[str, int | None] = {}
    for part in _text(value, what).split(","):
        name, equals, slots = (piece.strip() for piece in part.partition("="))
        if not name or name in found:
            raise InvalidArgumentError(
                f"{what} is {value!r}; write each queue once, with its slots: media=2,default=10"
            )
        found[name] = _count(slots, f"the slots of queue {name!r}") if equals else None
    return found


@dataclass(frozen=True, slots=True)
class _Kind:
    read: Callable[[Any, str], Any]
    default: Any = None


_KNOWN: Mapping[str, _Kind] = {
    "url": _Kind(_text, DEFAULT_URL),
    "app": _Kind(_text),
    "key": _Kind(_secret),
    "queues": _Kind(_queues, {"default": None}),
    "concurrency": _Kind(_count, DEFAULT_SLOTS),
    "lease": _Kind(_duration),
    "grace": _Kind(_duration, DEFAULT_GRACE),
    "processes": _Kind(_count, 1),
    "max_jobs": _Kind(_count),
    "max_memory": _Kind(_size),
    "data": _Kind(_text, DEFAULT_DATA),
    "host": _Kind(_text, DEFAULT_HOST),
    "port": _Kind(_port, DEFAULT_PORT),
    "keep_succeeded": _Kind(_duration, 30 * DAY),
    "keep_canceled": _Kind(_duration, 30 * DAY),
    "keep_failed": _Kind(_duration, 90 * DAY),
    "keep_log": _Kind(_duration, 30 * DAY),
}


def settings(
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Settings:
    """All settings, looked up for a process that works in `start`. None in arguments is unset."""
    known = os.environ if environment is None else environment
    path, table = _file(start or Path.cwd())
    unknown = sorted(set(table) - set(_KNOWN))
    if unknown:
        raise ConfigurationError(
            f"{path} has unknown settings: {', '.join(unknown)}; known are {', '.join(_KNOWN)}"
        )
    given = arguments or {}
    return Settings(
        {name: _look_up(name, kind, given, known, (path, table)) for name, kind in _KNOWN.items()}
    )


def _look_up(
    name: str,
    kind: _Kind,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    file: tuple[Path | None, Mapping[str, Any]],
) -> Value:
    variable = _PREFIX + name.upper()
    path, table = file
    if arguments.get(name) is not None:
        return Value(name, kind.read(arguments[name], name), "argument")
    if environment.get(variable):
        value = kind.read(environment[variable], variable)
        return Value(name, value, f"environment {variable}")
    if name in table and path is not None:
        value = _placed(name, kind.read(table[name], f"{name} in {path}"), path.parent)
        return Value(name, value, str(path))
    return Value(name, kind.default, "unset" if kind.default is None else "default")


def _placed(name: str, value: Any, place: Path) -> Any:
    """From wherever the file is read, what it names is the same."""
    if name == "url":
        above = "".join(quote(sign) if sign in "%#?" else sign for sign in str(place))
        return _RELATIVE.sub(lambda _: f"sqlite:///{above}/", value)
    return str(place / value) if name == "data" else value


def _file(start: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """The nearest file with settings, from `start` upward."""
    for place in (start, *start.parents):
        for path in (place / FILE, place / "pyproject.toml"):
            if not path.is_file():
                continue
            try:
                content = tomllib.loads(path.read_text("utf-8"))
            except (OSError, ValueError) as error:
                if path.name != FILE:
                    continue  # somebody else's file
                raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from None
            table = content if path.name == FILE else content.get("tool", {}).get("windlass")
            if isinstance(table, dict):
                return path, table
    return None, {}
