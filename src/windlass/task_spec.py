"""Tasks: the functions that jobs name, with their options and the shape of their arguments."""

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

from windlass.core.admission.gates import KEY, TASK, Limit
from windlass.core.admission.limit_key import KeySource, LimitKey
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.retry import Backoff, Policy
from windlass.core.errors import (
    CodecError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidInput,
    InvalidResult,
    TooLargeError,
)
from windlass.core.job.progress import StageMap
from windlass.core.job.result_reference import RESULTS, pack, promised
from windlass.core.job.row import DEFAULT_POLICY, DEFAULT_QUEUE
from windlass.core.sizes import check_size

_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
CONTEXT = "ctx"
_OWN: Any = object()
_CONFIG = ConfigDict(ser_json_inf_nan="constants")  # for the codec to refuse: else they become null
_AS_JSON: Any = {"mode": "json", "by_alias": True, "round_trip": True}  # what can be read back


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a task's jobs are run, unless one of them is enqueued otherwise."""

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
    """The arguments of a task, checked both when a job is enqueued and when it is run."""

    def __init__(self, function: Callable[..., Any], name: str, *, result: Any = _OWN) -> None:
        """`result` is its type, where the function's own annotation does not say it."""
        self._name = name
        parameters = list(inspect.signature(function).parameters.values())
        hints = hints_of(function, name)
        self.takes_context = bool(parameters) and parameters[0].name == CONTEXT
        self._bound = inspect.Signature(parameters[1:] if self.takes_context else parameters)
        self._arguments: dict[str, TypeAdapter[Any]] = {}
        for key, parameter in self._bound.parameters.items():
            if parameter.kind not in _NAMED:
                raise ConfigurationError(
                    f"task {name!r} has the parameter {str(parameter)!r}; "
                    "a task's arguments are stored by name, so each needs one"
                )
            whose = f"the parameter {key!r} of task {name!r}"
            self._arguments[key] = _adapter(hints.get(key, Any), whose)
        self._known = self._arguments.keys()
        self._positional = [
            key
            for key, parameter in self._bound.parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        self._needed = [
            key
            for key, parameter in self._bound.parameters.items()
            if parameter.default is inspect.Parameter.empty
        ]
        result = hints.get("return", Any) if result is _OWN else result
        never = result in (NoReturn, Never)
        self._result = _adapter(Any if never else result, f"the result of task {name!r}")

    def store(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parents: Sequence[UUID] = ()
    ) -> dict[str, Any]:
        """What is stored for a call with these arguments; says which one is wrong, and why.

        An argument that needs the result of one of the `parents` is checked when it is there.
        """
        if not parents:
            return self._store(self._bind(args, kwargs))
        given = self._bind(args, kwargs)
        place = {parent: number for number, parent in enumerate(parents)}.__getitem__
        later = {key: pack(value, place) for key, value in given.items() if promised(value)}
        stored = self._store({key: value for key, value in given.items() if key not in later})
        return {**stored, RESULTS: later} if later else stored

    def _store(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {
                key: (it := self._arguments[key]).serializer.to_python(
                    it.validator.validate_python(value),
                    mode="json",
                    by_alias=True,
                    round_trip=True,
                )
                for key, value in given.items()
            }
        except ValueError:
            pass  # all that is wrong is told below; pydantic's errors are of this kind
        checked, problems = self._check(given, strict=None)
        if problems:
            raise self._wrong(f"task {self._name!r}: {_told(problems)}", problems)
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
        """Of the arguments, in their order."""
        return self._known

    def checked(
        self, names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Some arguments of a call that `store` found good, as the task would get them."""
        given = self._bind(args, kwargs)
        later = [name for name in names if promised(given.get(name))]
        if later:
            raise InvalidArgumentError(
                f"task {self._name!r}: its limit_key needs the argument {later[0]!r}, which is the "
                "result of a job that has not run; name the key: task.options(limit_key=…)"
            )
        return {
            name: self._arguments[name].validator.validate_python(given[name])
            if name in given
            else self._bound.parameters[name].default
            for name in names
        }

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, as a call would take them."""
        given = dict(zip(self._positional, args))  # noqa: B905 - for speed
        if not kwargs and len(args) == len(given) == len(self._known):
            return given
        if (
            len(args) == len(given)
            and (not kwargs or (given.keys().isdisjoint(kwargs) and kwargs.keys() <= self._known))
            and all(key in given or key in kwargs for key in self._needed)
        ):
            return {**given, **kwargs} if kwargs else given
        unknown = [key for key in kwargs if key not in self._known]
        if unknown:
            names, takes = (", ".join(map(repr, these)) for these in (unknown, self._known))
            raise self._wrong(
                f"task {self._name!r} has no argument {names}; it takes {takes or 'none'}",
                [
                    (key, f"the task has no such argument; it takes {takes or 'none'}")
                    for key in unknown
                ],
            )
        try:  # slow, and good at saying what is wrong
            return self._bound.bind(*args, **kwargs).arguments
        except TypeError as error:
            absent = [key for key in self._needed if key not in given and key not in kwargs]
            problems = [(key, "it is needed") for key in absent]
            raise self._wrong(f"task {self._name!r}: {error}", problems) from None

    @staticmethod
    def _wrong(text: str, problems: Sequence[tuple[str, str]]) -> InvalidArgumentError:
        error = InvalidArgumentError(text)
        error.problems = problems
        return error

    def restore(self, stored: Any) -> dict[str, Any]:
        """The arguments for a call, from what was stored; what the task no longer has is left."""
        if not isinstance(stored, dict):
            raise InvalidInput(f"task {self._name!r}: the stored arguments are {stored!r:.80}")
        if len(stored) == len(self._known):
            try:
                return {
                    key: self._arguments[key].validator.validate_python(value, strict=False)
                    for key, value in stored.items()
                }
            except (ValueError, KeyError):
                pass  # told below, or left out there
        known = {key: value for key, value in stored.items() if key in self._known}
        checked, problems = self._check(known, strict=False)
        problems += [(key, "missing") for key in self._needed if key not in known]
        if problems:
            raise InvalidInput(f"task {self._name!r}: {_told(problems)}")
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
                problems += _explain(key, error)
        return checked, problems

    def result(self, value: Any) -> Any:
        """What is stored for a result, as plain data."""
        try:
            return self._result.serializer.to_python(value, **_AS_JSON, warnings=False)
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidResult(
                f"the result of task {self._name!r} cannot be stored: {error}"
            ) from None

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments, as whoever enqueues gives them."""
        adapters: list[tuple[str, Literal["validation"], TypeAdapter[Any]]]
        adapters = [(key, "validation", it) for key, it in self._arguments.items()]
        found, shared = TypeAdapter.json_schemas(adapters) if adapters else ({}, {})
        return {
            "type": "object",
            "properties": {
                key: _without_title(one) | self._default(key) for (key, _), one in found.items()
            },
            "required": list(self._needed),
            "additionalProperties": False,
            **shared,
        }

    def _default(self, key: str) -> dict[str, Any]:
        """What the task takes if the argument is not given, where JSON can say it."""
        default = self._bound.parameters[key].default
        if default is inspect.Parameter.empty:
            return {}
        try:
            return {"default": self._arguments[key].serializer.to_python(default, **_AS_JSON)}
        except (PydanticSerializationError, ValueError):
            return {}

    def result_schema(self) -> dict[str, Any]:
        return _without_title(self._result.json_schema(mode="serialization"))

    def restore_result(self, stored: Any) -> Any:
        try:
            return self._result.validate_python(stored, strict=False)
        except pydantic.ValidationError:
            return stored  # the task's type has changed since; the value itself is still true


def encode_result(value: Any, codec: Codec) -> bytes:
    """The bytes of a result. To do the work again would make it no better: what fails is final."""
    try:
        data = codec.encode(value, Purpose.RESULT)
        check_size("the result", data)
    except (CodecError, TooLargeError) as error:
        raise InvalidResult(str(error)) from error
    return data


def hints_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The types of its parameters; of a class, those that its fields or its `__init__` name."""
    try:
        hints = get_type_hints(function, include_extras=True)
        if isinstance(function, type) and not hints and "__init__" in vars(function):
            hints = get_type_hints(vars(function)["__init__"], include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"the annotations of task {name!r} cannot be read: {error}; they are needed when it "
            "runs, so the name must be imported there, and not only for type checkers"
        ) from None
    return hints


def _adapter(kind: Any, whose: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind, config=_CONFIG)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        if error.code == "type-adapter-config-unused":  # a model has its own
            return TypeAdapter(kind)
        raise ConfigurationError(
            f"{whose} cannot be stored: {str(error).partition('. ')[0]}; "
            f"use plain data, dataclasses or models (the context comes first, named {CONTEXT})"
        ) from None


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def _explain(key: str, error: pydantic.ValidationError) -> list[tuple[str, str]]:
    """Where in the argument, and what is wrong there."""
    parts = []
    for line in error.errors(include_url=False):
        where = ".".join([key, *(str(piece) for piece in line["loc"])])
        got = "" if line["type"] == "missing" else f", got {line['input']!r:.80}"
        parts.append((where, f"{line['msg']}{got}"))
    return parts


def _told(problems: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"argument {where!r}: {what}" for where, what in problems)


@dataclass(slots=True)
class TaskSpec:
    """A function, its stable name, its options, and the names it had before."""

    name: str
    function: Callable[..., Any]
    options: TaskOptions
    aliases: tuple[str, ...] = ()
    signature: Signature = field(init=False)
    is_async: bool = field(init=False)
    key: LimitKey | None = field(init=False)

    def __post_init__(self) -> None:
        self._take(Signature(self.function, self.name))

    def _take(self, signature: Signature) -> None:
        self.signature = signature
        self.is_async = inspect.iscoroutinefunction(self.function)
        source = self.options.limit_key
        self.key = None if source is None else LimitKey(source, self.name, signature.names)

    def key_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """The key by which limits count a job with these arguments, which were found good."""
        if self.key is None:
            return None
        return self.key.of(self.signature.checked(self.key.needs, args, kwargs))

    @property
    def limits(self) -> dict[str, Limit]:
        """What is declared for it, by the names of limits."""
        found = {TASK + self.name: self.options.limit, KEY + self.name: self.options.key_limit}
        return {name: limit for name, limit in found.items() if limit is not None}

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


class Registry:
    """The tasks an application knows, by their names of now and before."""

    def __init__(self) -> None:
        self._specs: dict[str, TaskSpec] = {}

    def add(self, *specs: TaskSpec) -> None:
        """All of them, or none if one has a name that is taken."""
        added: dict[str, TaskSpec] = {}
        for spec in specs:
            for name in spec.names:
                known = added.get(name) or self._specs.get(name)
                if known is not None and known.function is not spec.function:
                    raise ConfigurationError(
                        f"two tasks are named {name!r}: {where(known.function)} and "
                        f"{where(spec.function)}; give one of them name="
                    )
                added[name] = spec
        self._specs |= added

    def get(self, name: str) -> TaskSpec | None:
        return self._specs.get(name)

    def __iter__(self) -> Iterator[TaskSpec]:
        return (spec for name, spec in self._specs.items() if name == spec.name)


def where(function: Any) -> str:
    """The place in the source, for messages about a function, a class or an object's class."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    kind = function if isinstance(function, type) else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"
