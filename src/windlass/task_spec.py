"""Task specifications: function, options, and validation of arguments and results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Never, NoReturn, get_type_hints
from uuid import UUID

import pydantic
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError

from windlass.core.admission.limit import KEY, TASK, Limit
from windlass.core.admission.limit_key import KeySource, LimitKey
from windlass.core.codec import Codec, Purpose
from windlass.core.errors import (
    CodecError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidInput,
    InvalidResult,
    TooLargeError,
)
from windlass.core.job.new_job import DEFAULT_POLICY, DEFAULT_QUEUE
from windlass.core.job.progress import StageMap
from windlass.core.job.result_reference import RESULTS, encode_references, referenced_jobs
from windlass.core.job.retry_policy import Backoff, Policy
from windlass.core.size_limits import check_size

_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
CONTEXT = "ctx"
_FROM_ANNOTATION: Any = object()
# The codec refuses infinity and NaN; by default they become null.
_CONFIG = ConfigDict(ser_json_inf_nan="constants")
# Output that can be validated again.
_AS_JSON: Any = {"mode": "json", "by_alias": True, "round_trip": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options of a task. Enqueue options of a job override them."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    policy: Policy = DEFAULT_POLICY
    lease: float | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    terminal_on: tuple[type[BaseException], ...] = ()
    stages: StageMap | None = None
    executor: Literal["process"] | None = None
    limit: Limit | None = None
    limit_key: KeySource | None = None
    key_limit: Limit | None = None

    @property
    def backoff(self) -> Backoff:
        return self.policy.backoff


class Signature:
    """The arguments of a task, validated when a job is enqueued and when it runs."""

    def __init__(
        self, function: Callable[..., Any], name: str, *, result: Any = _FROM_ANNOTATION
    ) -> None:
        """`result` is the type of the result, if it is not the return annotation."""
        self._name = name
        parameters = list(inspect.signature(function).parameters.values())
        hints = type_hints(function, name)
        self.takes_context = bool(parameters) and parameters[0].name == CONTEXT
        self._bound = inspect.Signature(parameters[1:] if self.takes_context else parameters)
        self._arguments: dict[str, TypeAdapter[Any]] = {}
        for key, parameter in self._bound.parameters.items():
            if parameter.kind not in _NAMED:
                raise ConfigurationError(
                    f"task {name!r} has the parameter {str(parameter)!r}; "
                    "arguments are stored by name: *args, **kwargs and positional-only ones "
                    "are not supported"
                )
            what = f"the parameter {key!r} of task {name!r}"
            self._arguments[key] = _adapter(hints.get(key, Any), what)
        self._known = self._arguments.keys()
        self._positional = [
            key
            for key, parameter in self._bound.parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        self._required = [
            key
            for key, parameter in self._bound.parameters.items()
            if parameter.default is inspect.Parameter.empty
        ]
        result = hints.get("return", Any) if result is _FROM_ANNOTATION else result
        never = result in (NoReturn, Never)
        self._result = _adapter(Any if never else result, f"the result of task {name!r}")

    def store(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parents: Sequence[UUID] = ()
    ) -> dict[str, Any]:
        """Validate the arguments of a call, and return them in stored form.

        Arguments that refer to results of `parents` are validated when the job runs.
        """
        given = self._bind(args, kwargs)
        if not parents:
            return self._store(given)
        parent_index = {parent: number for number, parent in enumerate(parents)}.__getitem__
        later = {
            key: encode_references(value, parent_index)
            for key, value in given.items()
            if referenced_jobs(value)
        }
        stored = self._store({key: value for key, value in given.items() if key not in later})
        return {**stored, RESULTS: later} if later else stored

    def _store(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {
                key: (adapter := self._arguments[key]).serializer.to_python(
                    adapter.validator.validate_python(value),
                    mode="json",
                    by_alias=True,
                    round_trip=True,
                )
                for key, value in given.items()
            }
        except ValueError:
            pass  # collected below; pydantic's errors are ValueErrors
        checked, problems = self._check(given, strict=None)
        if problems:
            raise self._argument_error(
                f"task {self._name!r}: {_format_problems(problems)}", problems
            )
        stored: dict[str, Any] = {}
        for key, value in checked.items():
            try:
                stored[key] = self._arguments[key].serializer.to_python(value, **_AS_JSON)
            except (PydanticSerializationError, ValueError) as error:
                raise InvalidArgumentError(
                    f"task {self._name!r}: argument {key!r} cannot be stored: {error}"
                ) from None
        return stored

    @property
    def names(self) -> Collection[str]:
        """Return the names of the arguments, in order."""
        return self._known

    def validated(
        self, names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return some arguments of a valid call, as the task would receive them."""
        given = self._bind(args, kwargs)
        later = [name for name in names if referenced_jobs(given.get(name))]
        if later:
            raise InvalidArgumentError(
                f"task {self._name!r}: its limit_key uses the argument {later[0]!r}, which is the "
                "result of a job that has not run; set it: task.options(limit_key=…)"
            )
        return {
            name: self._arguments[name].validator.validate_python(given[name])
            if name in given
            else self._bound.parameters[name].default
            for name in names
        }

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, like `inspect.Signature.bind`."""
        given = dict(zip(self._positional, args))  # noqa: B905 - for speed
        if not kwargs and len(args) == len(given) == len(self._known):
            return given
        if (
            len(args) == len(given)
            and (not kwargs or (given.keys().isdisjoint(kwargs) and kwargs.keys() <= self._known))
            and all(key in given or key in kwargs for key in self._required)
        ):
            return {**given, **kwargs} if kwargs else given
        unknown = [key for key in kwargs if key not in self._known]
        if unknown:
            unknown_names, valid = (", ".join(map(repr, keys)) for keys in (unknown, self._known))
            raise self._argument_error(
                f"task {self._name!r} has no argument {unknown_names}; it takes {valid or 'none'}",
                [
                    (key, f"the task has no such argument; it takes {valid or 'none'}")
                    for key in unknown
                ],
            )
        try:  # slow, but with good error messages
            return self._bound.bind(*args, **kwargs).arguments
        except TypeError as error:
            absent = [key for key in self._required if key not in given and key not in kwargs]
            problems = [(key, "required") for key in absent]
            raise self._argument_error(f"task {self._name!r}: {error}", problems) from None

    @staticmethod
    def _argument_error(text: str, problems: Sequence[tuple[str, str]]) -> InvalidArgumentError:
        error = InvalidArgumentError(text)
        error.problems = problems
        return error

    def restore(self, stored: Any) -> dict[str, Any]:
        """Validate stored arguments for a call; ignores those that the task no longer has."""
        if not isinstance(stored, dict):
            raise InvalidInput(
                f"task {self._name!r}: the stored arguments are {stored!r:.80}, not an object"
            )
        if len(stored) == len(self._known):
            try:
                return {
                    key: self._arguments[key].validator.validate_python(value, strict=False)
                    for key, value in stored.items()
                }
            except (ValueError, KeyError):
                pass  # reported or ignored below
        known = {key: value for key, value in stored.items() if key in self._known}
        checked, problems = self._check(known, strict=False)
        problems += [(key, "missing") for key in self._required if key not in known]
        if problems:
            raise InvalidInput(f"task {self._name!r}: {_format_problems(problems)}")
        return checked

    def _check(
        self, given: Mapping[str, Any], *, strict: bool | None
    ) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        checked: dict[str, Any] = {}
        problems: list[tuple[str, str]] = []
        for key, value in given.items():
            try:
                checked[key] = self._arguments[key].validator.validate_python(value, strict=strict)
            except pydantic.ValidationError as error:
                problems += _problems(key, error)
        return checked, problems

    def result(self, value: Any) -> Any:
        """Return a result in stored form, as plain data."""
        try:
            return self._result.serializer.to_python(value, **_AS_JSON, warnings=False)
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidResult(
                f"the result of task {self._name!r} cannot be stored: {error}"
            ) from None

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of its arguments."""
        adapters: list[tuple[str, Literal["validation"], TypeAdapter[Any]]]
        adapters = [(key, "validation", adapter) for key, adapter in self._arguments.items()]
        found, shared = TypeAdapter.json_schemas(adapters) if adapters else ({}, {})
        return {
            "type": "object",
            "properties": {
                key: _without_title(schema) | self._default(key)
                for (key, _), schema in found.items()
            },
            "required": list(self._required),
            "additionalProperties": False,
            **shared,
        }

    def _default(self, key: str) -> dict[str, Any]:
        """Return the default of an argument, if JSON can represent it."""
        default = self._bound.parameters[key].default
        if default is inspect.Parameter.empty:
            return {}
        try:
            return {"default": self._arguments[key].serializer.to_python(default, **_AS_JSON)}
        except (PydanticSerializationError, ValueError):
            return {}

    def result_schema(self) -> dict[str, Any]:
        """Return the JSON schema of its result."""
        return _without_title(self._result.json_schema(mode="serialization"))

    def restore_result(self, stored: Any) -> Any:
        """Return a stored result as the annotated type."""
        try:
            return self._result.validate_python(stored, strict=False)
        except pydantic.ValidationError:
            return stored  # the annotation has changed since; the value is still valid


def encode_result(value: Any, codec: Codec) -> bytes:
    """Encode a result. Errors are terminal: a retry would return the same result."""
    try:
        data = codec.encode(value, Purpose.RESULT)
        check_size("the result", data)
    except (CodecError, TooLargeError) as error:
        raise InvalidResult(str(error)) from error
    return data


def type_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the type hints of a function, or of the fields or `__init__` of a class."""
    try:
        hints = get_type_hints(function, include_extras=True)
        if isinstance(function, type) and not hints and "__init__" in vars(function):
            hints = get_type_hints(vars(function)["__init__"], include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"the annotations of task {name!r} cannot be read: {error}; import the name at run "
            "time, not only for type checkers"
        ) from None
    return hints


def _adapter(kind: Any, what: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind, config=_CONFIG)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        if error.code == "type-adapter-config-unused":  # a model has its own config
            return TypeAdapter(kind)
        raise ConfigurationError(
            f"{what} cannot be stored: {str(error).partition('. ')[0]}; "
            f"use plain data, dataclasses or models (the context comes first, named {CONTEXT})"
        ) from None


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def _problems(key: str, error: pydantic.ValidationError) -> list[tuple[str, str]]:
    """Return (path, message) pairs of a validation error."""
    parts = []
    for line in error.errors(include_url=False):
        where = ".".join([key, *(str(piece) for piece in line["loc"])])
        got = "" if line["type"] == "missing" else f", got {line['input']!r:.80}"
        parts.append((where, f"{line['msg']}{got}"))
    return parts


def _format_problems(problems: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"argument {where!r}: {what}" for where, what in problems)


@dataclass(slots=True)
class TaskSpec:
    """A function, its stable name, its options, and its former names."""

    name: str
    function: Callable[..., Any]
    options: TaskOptions
    aliases: tuple[str, ...] = ()
    signature: Signature = field(init=False)
    is_async: bool = field(init=False)
    key: LimitKey | None = field(init=False)

    def __post_init__(self) -> None:
        self._set_signature(Signature(self.function, self.name))

    def _set_signature(self, signature: Signature) -> None:
        self.signature = signature
        self.is_async = inspect.iscoroutinefunction(self.function)
        source = self.options.limit_key
        self.key = None if source is None else LimitKey(source, self.name, signature.names)

    def limit_key_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return the limit key of a job with these valid arguments."""
        if self.key is None:
            return None
        return self.key.of(self.signature.validated(self.key.argument_names, args, kwargs))

    @property
    def limits(self) -> dict[str, Limit]:
        """Return its declared limits, by the names of limits."""
        found = {TASK + self.name: self.options.limit, KEY + self.name: self.options.key_limit}
        return {name: limit for name, limit in found.items() if limit is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """Return its name and its former names."""
        return (self.name, *self.aliases)


class Registry:
    """The tasks of an application, by current and former names."""

    def __init__(self) -> None:
        self._specs: dict[str, TaskSpec] = {}

    def add(self, *specs: TaskSpec) -> None:
        """Add all of them; raises an error and adds none if a name is taken."""
        added: dict[str, TaskSpec] = {}
        for spec in specs:
            for name in spec.names:
                known = added.get(name) or self._specs.get(name)
                if known is not None and known.function is not spec.function:
                    raise ConfigurationError(
                        f"two tasks are named {name!r}: {source_location(known.function)} and "
                        f"{source_location(spec.function)}; give one of them name="
                    )
                added[name] = spec
        self._specs |= added

    def get(self, name: str) -> TaskSpec | None:
        return self._specs.get(name)

    def __iter__(self) -> Iterator[TaskSpec]:
        return (spec for name, spec in self._specs.items() if name == spec.name)


def source_location(function: Any) -> str:
    """Return the source location of a function, or the name of a class, for messages."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    kind = function if isinstance(function, type) else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"
