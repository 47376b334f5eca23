"""Tasks: the functions that jobs name, with their options and the shape of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, Required, get_type_hints

import pydantic
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from windlass.core.errors import ConfigurationError, InvalidArgumentError, InvalidInput
from windlass.core.job import DEFAULT_POLICY, DEFAULT_QUEUE
from windlass.core.retry import Backoff, Policy

_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
CONTEXT = "ctx"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a task's jobs are run, unless one of them is enqueued otherwise."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    policy: Policy = DEFAULT_POLICY
    lease: float | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    terminal_on: tuple[type[BaseException], ...] = ()

    @property
    def backoff(self) -> Backoff:
        return self.policy.backoff


class Signature:
    """The arguments of a task, checked both when a job is enqueued and when it is run."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(function, include_extras=True)
        self.takes_context = bool(parameters) and parameters[0].name == CONTEXT
        self._bound = inspect.Signature(parameters[1:] if self.takes_context else parameters)
        fields: dict[str, Any] = {}
        for parameter in self._bound.parameters.values():
            if parameter.kind not in _NAMED:
                raise ConfigurationError(
                    f"task {name!r} has the parameter {str(parameter)!r}; "
                    "a task's arguments are stored by name, so each needs one"
                )
            kind = hints.get(parameter.name, Any)
            optional = parameter.default is not inspect.Parameter.empty
            fields[parameter.name] = NotRequired[kind] if optional else Required[kind]
        self._arguments: TypeAdapter[Any] = TypeAdapter(TypedDict("Arguments", fields))  # type: ignore[operator]
        result = hints.get("return", Any)
        self._result: TypeAdapter[Any] = TypeAdapter(Any if result is None else result)

    def store(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What is stored for a call with these arguments; says which one is wrong, and why."""
        try:
            given = self._bound.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArgumentError(f"task {self._name!r}: {error}") from None
        try:
            checked = self._arguments.validate_python(dict(given))
        except pydantic.ValidationError as error:
            raise InvalidArgumentError(f"task {self._name!r}: {_explain(error)}") from None
        stored: dict[str, Any] = self._arguments.dump_python(checked, mode="json")
        return stored

    def restore(self, stored: Any) -> dict[str, Any]:
        """The arguments for a call, from what was stored."""
        try:
            checked: dict[str, Any] = self._arguments.validate_python(stored)
        except pydantic.ValidationError as error:
            raise InvalidInput(f"task {self._name!r}: {_explain(error)}") from None
        return checked

    def result(self, value: Any) -> Any:
        return self._result.dump_python(value, mode="json", warnings=False)

    def restore_result(self, stored: Any) -> Any:
        try:
            return self._result.validate_python(stored)
        except pydantic.ValidationError:
            return stored  # the task's type has changed since; the value itself is still true


def _explain(error: pydantic.ValidationError) -> str:
    parts = []
    for line in error.errors(include_url=False):
        where = ".".join(str(piece) for piece in line["loc"]) or "arguments"
        got = "" if line["type"] == "missing" else f", got {line['input']!r:.80}"
        parts.append(f"argument {where!r}: {line['msg']}{got}")
    return "; ".join(parts)


@dataclass(slots=True)
class TaskSpec:
    """A function, its stable name, and its options."""

    name: str
    function: Callable[..., Any]
    options: TaskOptions
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        self.signature = Signature(self.function, self.name)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


class Registry:
    """The tasks an application knows, by name."""

    def __init__(self) -> None:
        self._specs: dict[str, TaskSpec] = {}

    def add(self, spec: TaskSpec) -> None:
        known = self._specs.get(spec.name)
        if known is not None and known.function is not spec.function:
            raise ConfigurationError(
                f"two tasks are named {spec.name!r}: {_where(known.function)} and "
                f"{_where(spec.function)}; give one of them name="
            )
        self._specs[spec.name] = spec

    def get(self, name: str) -> TaskSpec | None:
        return self._specs.get(name)

    def __iter__(self) -> Iterator[TaskSpec]:
        return iter(self._specs.values())


def _where(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
