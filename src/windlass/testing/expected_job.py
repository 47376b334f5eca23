"""Matching of enqueued jobs against a test's expectation, and the error message."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windlass.app import Windlass
from windlass.core.clock import from_datetime, to_datetime
from windlass.core.codec import Purpose
from windlass.core.duration import to_seconds
from windlass.core.errors import InvalidArgumentError, WindlassError
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.task_spec import TaskSpec

# Job options that a test can filter by, with their defaults.
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
class ObservedJob:
    """A job as it was enqueued, with the arguments that its task receives."""

    task: str
    state: State
    stored: dict[str, Any]
    arguments: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, row: JobRow, new: NewJob | None, app: Windlass) -> ObservedJob:
        stored = app.codec.decode(row.payload, Purpose.PAYLOAD)
        stored = stored if isinstance(stored, dict) else {}
        spec = app.tasks.get(row.task)
        arguments = dict(stored)
        if spec is not None:
            try:
                values = _defaults(spec) | spec.signature.restore(stored)
                arguments = {name: values[name] for name in _parameters(spec) if name in values}
            except WindlassError:
                arguments = dict(
                    stored
                )  # a middleware may change them; the attempt reports the error
        source = new or row
        options = {name: getattr(source, name, default) for name, default in _OPTIONS.items()}
        if isinstance(options["run_at"], int):
            options["run_at"] = to_datetime(options["run_at"])
        return cls(row.task, row.state, stored, arguments, options)

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value!r:.60}" for key, value in self.arguments.items())
        options = [
            f"{name}={value!r}"
            for name, value in self.options.items()
            if value != _OPTIONS[name] and name != "headers"
        ]
        return " ".join([f"{self.task}({shown})", *options, f"is {self.state}"])


@dataclass(frozen=True, slots=True)
class ExpectedJob:
    task: str
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, spec: TaskSpec, given: Mapping[str, Any]) -> ExpectedJob:
        names = _parameters(spec)
        arguments = {name: value for name, value in given.items() if name in names}
        options = {name: _read(name, given[name]) for name in given if name not in names}
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise InvalidArgumentError(
                f"{', '.join(unknown)}: neither an argument of {spec.name!r} "
                f"({', '.join(names) or 'no arguments'}) nor an option ({', '.join(_OPTIONS)})"
            )
        return cls(spec.name, arguments, options)

    def matches(self, observed: ObservedJob) -> bool:
        return all(
            value in (observed.arguments.get(name, _MISSING), observed.stored.get(name, _MISSING))
            for name, value in self.arguments.items()
        ) and all(
            _option_matches(name, value, observed.options[name])
            for name, value in self.options.items()
        )

    def __str__(self) -> str:
        filters = {**self.arguments, **self.options}
        return ", ".join(f"{name}={value!r:.60}" for name, value in filters.items())


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
        return to_seconds(value, name)
    if name == "run_at" and isinstance(value, datetime):
        from_datetime(value)  # raises without a time zone
    if name == "tags":
        return (value,) if isinstance(value, str) else tuple(value)
    return value


def _option_matches(name: str, wanted: Any, actual: Any) -> bool:
    """Tags and headers must contain `wanted`; every other option must equal it."""
    if name == "tags":
        return set(wanted) <= set(actual)
    if name == "headers":
        return all(actual.get(key) == value for key, value in wanted.items())
    return bool(wanted == actual)


def mismatch_message(
    expected: ExpectedJob, found: int, count: int | None, observed: Sequence[ObservedJob]
) -> str:
    """Describe the mismatch and list the enqueued jobs, those of the expected task first."""
    filters = f" with {expected}" if str(expected) else ""
    if count is None:
        problem = f"no job of {expected.task} was enqueued{filters}"
    else:
        jobs = "job was" if found == 1 else "jobs were"
        problem = f"{found} {jobs} enqueued of {expected.task}{filters}, not {count}"
    if not observed:
        return f"{problem}; nothing was enqueued"
    ordered = sorted(observed, key=lambda job: job.task != expected.task)
    return "\n  ".join([f"{problem}; enqueued jobs:", *(str(job) for job in ordered)])
