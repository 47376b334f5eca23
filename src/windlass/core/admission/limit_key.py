"""Limit keys: computed from the arguments of a job, for limits per key and fairness."""

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
    """The `limit_key=` option of a task: the name of one argument, or a function of several."""

    def __init__(self, source: KeySource, task: str, task_arguments: Collection[str]) -> None:
        self._task = task
        self._function = source if callable(source) else None
        self.argument_names = _parameters(source, task) if callable(source) else (source,)
        unknown = [name for name in self.argument_names if name not in task_arguments]
        if unknown:
            takes = ", ".join(repr(name) for name in task_arguments) or "none"
            raise ConfigurationError(
                f"limit_key of task {task!r} uses the argument {unknown[0]!r}, "
                f"but the task takes {takes}"
            )

    def of(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the key for the values of `argument_names`; None if the job has no key."""
        if self._function is None:
            return key_text(arguments[self.argument_names[0]], f"limit_key of task {self._task!r}")
        try:
            key = self._function(**arguments)
        except Exception as error:
            raise InvalidArgumentError(
                f"limit_key of task {self._task!r} raised {type(error).__name__}: {error}"
            ) from error
        return key_text(key, f"limit_key of task {self._task!r}")


def key_text(value: Any, what: str = "limit_key") -> str | None:
    """Return a key as it is stored: as text."""
    match value:
        case Enum():
            return key_text(value.value, what)
        case None | str():
            return value
        case int() | UUID():
            return str(value)
    raise InvalidArgumentError(
        f"{what} is {value!r:.80}; it must be a string, an integer, a UUID, "
        "or None for a job without a key"
    )


def _parameters(function: Callable[..., Any], task: str) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"limit_key of task {task!r} is {function!r:.80}, whose parameters cannot be read; "
            "use a function of the arguments that it needs: lambda tenant: tenant.id"
        ) from None
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"limit_key of task {task!r} is an async function; use a plain one: it is called at "
            "each enqueue, also without an event loop"
        )
    for parameter in parameters:
        if parameter.kind not in _NAMED:
            raise ConfigurationError(
                f"limit_key of task {task!r} has the parameter {str(parameter)!r}; "
                "arguments are passed by name, so *args, **kwargs and positional-only "
                "parameters are not supported"
            )
    return tuple(parameter.name for parameter in parameters)
