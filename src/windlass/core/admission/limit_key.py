"""The key of a job, by which its task's limits per key count, and by which keys take turns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.errors import ConfigurationError, InvalidArgumentError

KeySource: TypeAlias = str | Callable[..., Any]
_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


class LimitKey:
    """What `limit_key=` says of a task: the name of one argument, or a function of some of them."""

    def __init__(self, given: KeySource, task: str, known: Collection[str]) -> None:
        """`known` are the arguments that the task takes."""
        self._task = task
        self._function = given if callable(given) else None
        self.needs = _parameters(given, task) if callable(given) else (given,)
        unknown = [name for name in self.needs if name not in known]
        if unknown:
            takes = ", ".join(repr(name) for name in known) or "none"
            raise ConfigurationError(
                f"limit_key of task {task!r} needs the argument {unknown[0]!r}, "
                f"and the task takes {takes}"
            )

    def of(self, arguments: Mapping[str, Any]) -> str | None:
        """The key of a job with these arguments, those that it `needs`; None if it has none."""
        if self._function is None:
            return as_text(arguments[self.needs[0]], f"limit_key of task {self._task!r}")
        try:
            answer = self._function(**arguments)
        except Exception as error:
            raise InvalidArgumentError(
                f"limit_key of task {self._task!r} raised {type(error).__name__}: {error}"
            ) from error
        return as_text(answer, f"limit_key of task {self._task!r}")


def as_text(value: Any, what: str = "limit_key") -> str | None:
    """A key as it is stored."""
    match value:
        case Enum():
            return as_text(value.value, what)
        case None | str():
            return value
        case int() | UUID():
            return str(value)
    raise InvalidArgumentError(
        f"{what} is {value!r:.80}; it must be text, a whole number, a UUID, "
        "or None for a job without a key"
    )


def _parameters(function: Callable[..., Any], task: str) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"limit_key of task {task!r} is {function!r:.80}, whose parameters cannot be read; "
            "write a function of the arguments that it needs: lambda tenant: tenant.id"
        ) from None
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"limit_key of task {task!r} is an async function; it is called at each enqueue, "
            "also by code without an event loop: make it a plain one"
        )
    for one in parameters:
        if one.kind not in _NAMED:
            raise ConfigurationError(
                f"limit_key of task {task!r} has the parameter {str(one)!r}; "
                "it gets the arguments of a job by name, so each needs one"
            )
    return tuple(one.name for one in parameters)
