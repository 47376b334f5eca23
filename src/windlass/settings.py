"""Settings of commands and apps: from arguments, the environment and windlass.toml.

Only this module reads the environment. `WorkerConfig` and `ServerConfig` configure one worker and
one server in code; `windlass worker` and `windlass serve` create them from these settings.

Arguments override the environment (`WINDLASS_…`). The environment overrides `windlass.toml` (or
`[tool.windlass]` in `pyproject.toml`) in the working directory or its nearest parent. The file
overrides the default. A setting without a value and without a default is unset (None).
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

from windlass.core.duration import to_seconds
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
_RELATIVE_SQLITE_URL = re.compile(r"sqlite:///(?!/)")
_SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def store_url(argument: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return the URL of the store: the argument, WINDLASS_URL, windlass.toml, or ./windlass.db."""
    return argument or str(load_settings({}, environment)["url"].value)


def store_key(argument: str | None = None) -> str | None:
    """Return the API key of a server: the argument, WINDLASS_KEY, or windlass.toml."""
    key: str | None = argument or load_settings()["key"].value
    return key


def data_directory(argument: Path | str | None = None) -> Path:
    """Return the directory of workspaces: argument, WINDLASS_DATA, file, or ./windlass-data."""
    return Path(argument or load_settings()["data"].value).absolute()


# -- the settings


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One setting. `origin` is where its value comes from; the value None is unset."""

    name: str
    value: Any
    origin: str

    @property
    def is_set(self) -> bool:
        """Whether it was set explicitly."""
        return self.origin not in {"default", "unset"}


class Settings:
    """All settings by name, with their origins."""

    def __init__(self, values: Mapping[str, SettingValue]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> SettingValue:
        return self._values[name]

    def __iter__(self) -> Iterator[SettingValue]:
        return iter(self._values.values())


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{what} is {value!r}; it must be a string")
    return value


def _secret(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{what} must be a string")  # never shows a secret
    return value


def _count(value: Any, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if isinstance(value, bool | float) or number < 1:
        raise InvalidArgumentError(f"{what} is {value!r}; it must be an integer of at least 1")
    return number


def _port(value: Any, what: str) -> int:
    try:
        number = -1 if isinstance(value, bool | float) else int(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= _MAX_PORT:
        raise InvalidArgumentError(f"{what} is {value!r}; it must be between 0 and {_MAX_PORT}")
    return number


def _duration(value: Any, what: str) -> float:
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value.strip()):
        return float(value)  # environment variables are strings
    if isinstance(value, bool):
        raise InvalidArgumentError(f'{what} is {value!r}; write seconds, or text such as "5m"')
    return to_seconds(value, what)


def _size(value: Any, what: str) -> int:
    """Parse bytes, or text such as "512M" and "2G" (powers of 1024)."""
    match = _SIZE_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    number = float(match[1]) * _UNITS[match[2].lower()] if match else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 1:
        raise InvalidArgumentError(f'{what} is {value!r}; write it as "512M" or "2G"')
    return int(number)


def _queues(value: Any, what: str) -> dict[str, int | None]:
    """Parse `media=2,default`, or a TOML table; without slots (None), `concurrency` applies."""
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
class SettingType:
    """How a setting is written: the parser of its values, and its format for the reference."""

    parse: Callable[[Any, str], Any]
    format: str


_TEXT = SettingType(_text, "string")
_SECRET = SettingType(_secret, "string")
_COUNT = SettingType(_count, "integer")
_PORT = SettingType(_port, "integer")
_DURATION = SettingType(_duration, 'seconds, or text: "5m"')
_SIZE = SettingType(_size, 'bytes, or text: "512M"')
_QUEUES = SettingType(_queues, '"media=2,default=10", or a table')


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """The type, the meaning and the default of a setting."""

    type: SettingType
    meaning: str
    default: Any = None


SETTINGS: Mapping[str, SettingSpec] = {
    "url": SettingSpec(_TEXT, "the store URL", DEFAULT_URL),
    "app": SettingSpec(_TEXT, "the application, `module:app`"),
    "key": SettingSpec(_SECRET, "the API key of the server, if `url` is `https://…`; never shown"),
    "queues": SettingSpec(_QUEUES, "queues of a worker, each with its slots", {"default": None}),
    "concurrency": SettingSpec(
        _COUNT, "slots of each queue that has no number in `queues`", DEFAULT_SLOTS
    ),
    "lease": SettingSpec(_DURATION, "overrides the leases of the tasks"),
    "grace": SettingSpec(_DURATION, "how long a shutdown waits for running jobs", DEFAULT_GRACE),
    "processes": SettingSpec(_COUNT, "number of worker processes", 1),
    "max_jobs": SettingSpec(_COUNT, "a worker exits after this many attempts"),
    "max_memory": SettingSpec(_SIZE, "a worker exits when it uses more memory"),
    "data": SettingSpec(_TEXT, "the directory of workspaces", DEFAULT_DATA),
    "host": SettingSpec(_TEXT, "the address that `windlass serve` listens on", DEFAULT_HOST),
    "port": SettingSpec(_PORT, "the port that it listens on; 0 selects a free port", DEFAULT_PORT),
    "keep_succeeded": SettingSpec(
        _DURATION, "how long succeeded jobs are kept; 0 is forever", 30 * DAY
    ),
    "keep_canceled": SettingSpec(
        _DURATION, "how long canceled jobs are kept; 0 is forever", 30 * DAY
    ),
    "keep_failed": SettingSpec(_DURATION, "how long failed jobs are kept; 0 is forever", 90 * DAY),
    "keep_log": SettingSpec(
        _DURATION, "how long the logs of finished jobs are kept; 0 is forever", 30 * DAY
    ),
}


def load_settings(
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Settings:
    """Return all settings for the working directory `start`. None in arguments is unset."""
    variables = os.environ if environment is None else environment
    path, table = _file(start or Path.cwd())
    unknown = sorted(set(table) - set(SETTINGS))
    if unknown:
        raise ConfigurationError(
            f"{path} has unknown settings: {', '.join(unknown)}; valid are {', '.join(SETTINGS)}"
        )
    given = arguments or {}
    return Settings(
        {
            name: _resolve(name, spec, given, variables, (path, table))
            for name, spec in SETTINGS.items()
        }
    )


def _resolve(
    name: str,
    spec: SettingSpec,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    file: tuple[Path | None, Mapping[str, Any]],
) -> SettingValue:
    variable = _PREFIX + name.upper()
    path, table = file
    if arguments.get(name) is not None:
        return SettingValue(name, spec.type.parse(arguments[name], name), "argument")
    if environment.get(variable):
        value = spec.type.parse(environment[variable], variable)
        return SettingValue(name, value, f"environment {variable}")
    if name in table and path is not None:
        value = _relative_to(name, spec.type.parse(table[name], f"{name} in {path}"), path.parent)
        return SettingValue(name, value, str(path))
    return SettingValue(name, spec.default, "unset" if spec.default is None else "default")


def _relative_to(name: str, value: Any, directory: Path) -> Any:
    """Resolve paths in a settings file relative to the file, not to the working directory."""
    if name == "url":
        parent = "".join(quote(char) if char in "%#?" else char for char in str(directory))
        return _RELATIVE_SQLITE_URL.sub(lambda _: f"sqlite:///{parent}/", value)
    return str(directory / value) if name == "data" else value


def _file(start: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """Return the nearest settings file, from `start` upward."""
    for directory in (start, *start.parents):
        for path in (directory / FILE, directory / "pyproject.toml"):
            if not path.is_file():
                continue
            try:
                content = tomllib.loads(path.read_text("utf-8"))
            except (OSError, ValueError) as error:
                if path.name != FILE:
                    continue  # a file of another tool
                raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from None
            table = content if path.name == FILE else content.get("tool", {}).get("windlass")
            if isinstance(table, dict):
                return path, table
    return None, {}
