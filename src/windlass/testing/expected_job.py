"""Whether a job is the one that a test expects, and what to say if none is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windlass.app import Windlass
from windlass.core.clock import from_datetime, to_datetime
from windlass.core.codec import Purpose
from windlass.core.duration import seconds
from windlass.core.errors import InvalidArgumentError, WindlassError
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.task_spec import TaskSpec

# What may be said of a job beside its arguments, and what it is when nobody says it.
_OPTIONS: Mapping[str, Any] = {
    "queue": "default",
    "priority": 0,
    "delay": 0.0,
    "run_at": None,
    "hold": False,
    "expires_in": None,
    "request_id": None,
    "unique_key": None,
    "debounce": False,
    "owner": "",
    "team": None,
    "tags": (),
    "headers": {},
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as it was asked for, with its arguments as its task gets them."""

    task: str
    state: State
    stored: dict[str, Any]
    arguments: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, row: JobRow, new: NewJob | None, app: Windlass) -> Seen:
        stored = app.codec.decode(row.payload, Purpose.PAYLOAD)
        stored = stored if isinstance(stored, dict) else {}
        spec = app.tasks.get(row.task)
        arguments = dict(stored)
        if spec is not None:
            try:
                known = _defaults(spec) | spec.signature.restore(stored)
                arguments = {name: known[name] for name in _parameters(spec) if name in known}
            except WindlassError:
                arguments = dict(stored)  # changed by a middleware, say; its task will complain
        asked = new or row
        options = {name: getattr(asked, name, default) for name, default in _OPTIONS.items()}
        if isinstance(options["run_at"], int):
            options["run_at"] = to_datetime(options["run_at"])
        return cls(row.task, row.state, stored, arguments, options)

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value!r:.60}" for key, value in self.arguments.items())
        said = [
            f"{name}={value!r}"
            for name, value in self.options.items()
            if value != _OPTIONS[name] and name != "headers"
        ]
        return " ".join([f"{self.task}({shown})", *said, f"is {self.state}"])


@dataclass(frozen=True, slots=True)
class Expected:
    task: str
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, spec: TaskSpec, given: Mapping[str, Any]) -> Expected:
        names = _parameters(spec)
        arguments = {name: value for name, value in given.items() if name in names}
        options = {name: _read(name, given[name]) for name in given if name not in names}
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise InvalidArgumentError(
                f"{', '.join(unknown)}: neither an argument of {spec.name!r} "
                f"({', '.join(names) or 'it has none'}) nor an option ({', '.join(_OPTIONS)})"
            )
        return cls(spec.name, arguments, options)

    def met_by(self, seen: Seen) -> bool:
        return all(
            value in (seen.arguments.get(name, _MISSING), seen.stored.get(name, _MISSING))
            for name, value in self.arguments.items()
        ) and all(_fits(name, value, seen.options[name]) for name, value in self.options.items())

    def __str__(self) -> str:
        said = {**self.arguments, **self.options}
        return ", ".join(f"{name}={value!r:.60}" for name, value in said.items())


_MISSING = object()


def _parameters(spec: TaskSpec) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(spec.function).parameters)
    if spec.signature.takes_context:
        del parameters[next(iter(parameters))]
    return parameters


def _defaults(spec: TaskSpec) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in _parameters(spec).items()
        if parameter.default is not inspect.Parameter.empty
    }


def _read(name: str, value: Any) -> Any:
    if name in {"delay", "expires_in"} and value is not None:
        return seconds(value, name)
    if name == "run_at" and isinstance(value, datetime):
        from_datetime(value)  # it must have a time zone
    if name == "tags":
        return (value,) if isinstance(value, str) else tuple(value)
    return value


def _fits(name: str, wanted: Any, got: Any) -> bool:
    """Tags and headers must hold what is wanted; everything else must be it."""
    if name == "tags":
        return set(wanted) <= set(got)
    if name == "headers":
        return all(got.get(key) == value for key, value in wanted.items())
    return bool(wanted == got)


def complain(wanted: Expected, found: int, count: int | None, there: Sequence[Seen]) -> str:
    """What is wrong, and what was enqueued instead, the wanted task's jobs first."""
    narrowed = f" with {wanted}" if str(wanted) else ""
    if count is None:
        problem = f"no job of {wanted.task} was enqueued{narrowed}"
    else:
        jobs = "job was" if found == 1 else "jobs were"
        problem = f"{found} {jobs} enqueued of {wanted.task}{narrowed}, not {count}"
    if not there:
        return f"{problem}; nothing was enqueued"
    ordered = sorted(there, key=lambda seen: seen.task != wanted.task)
    return "\n  ".join([f"{problem}; enqueued were:", *(str(seen) for seen in ordered)])
