"""Task specifications: validation and storage of arguments and results."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pydantic
import pytest

from windlass import Context, Windlass
from windlass.core.codec import JsonCodec, Purpose
from windlass.core.errors import (
    CodecError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidInput,
    InvalidResult,
    TooLargeError,
)
from windlass.core.size_limits import MAX_BLOB
from windlass.task_spec import Registry, Signature, TaskOptions, TaskSpec

if TYPE_CHECKING:
    from fractions import Fraction

ID = UUID("018f2f6e-0000-7000-8000-000000000001")
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.5


class Order(pydantic.BaseModel):
    number: int
    at: datetime
    lines: list[Point] = []


class Camel(pydantic.BaseModel):
    """A typical web model: aliases, no extra fields, a computed field."""

    model_config = pydantic.ConfigDict(extra="forbid")
    first_name: str = pydantic.Field(alias="firstName")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.first_name.upper()


class Early(pydantic.BaseModel):
    later: Later


def early(early: Early) -> Early:
    return early


# Created while the model is incomplete, like a decorated function above its model.
EARLY = Signature(early, "early")


class Later(pydantic.BaseModel):
    number: int


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: UUID
    at: datetime
    tags: tuple[str, ...]


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Encode the arguments, decode them and restore them, as a store and a worker do."""
    signature = Signature(function, "a.task")
    codec = JsonCodec()
    data = codec.encode(signature.store(args, kwargs), Purpose.PAYLOAD)
    return signature.restore(codec.decode(data, Purpose.PAYLOAD))


# -- signatures


def test_a_default_is_not_stored_so_the_running_code_applies_its_own() -> None:
    def task(a: int, b: int = 2) -> None: ...

    assert Signature(task, "t").store((1,), {}) == {"a": 1}
    assert round_trip(task, 1) == {"a": 1}
    assert round_trip(task, 1, 5) == {"a": 1, "b": 5}


def test_arguments_may_be_positional_or_by_name() -> None:
    def task(a: int, b: int, *, c: int) -> None: ...

    assert round_trip(task, 1, b=2, c=3) == {"a": 1, "b": 2, "c": 3}


def test_a_keyword_only_argument_is_refused_as_positional() -> None:
    def task(a: int, *, b: int) -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"task 't': too many positional"):
        Signature(task, "t").store((1, 2), {})


def test_a_task_without_arguments_stores_none() -> None:
    def task() -> None: ...

    assert round_trip(task) == {}


def test_the_context_is_the_first_parameter_and_no_argument() -> None:
    def with_context(ctx: Context, a: int) -> None: ...
    def without(a: int) -> None: ...

    assert Signature(with_context, "t").takes_context
    assert not Signature(without, "t").takes_context
    assert round_trip(with_context, 1) == round_trip(without, 1) == {"a": 1}


def test_a_context_in_another_position_is_refused_at_definition() -> None:
    def task(a: int, ctx: Context) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'ctx' of task 't' .*the context comes first"):
        Signature(task, "t")


def test_arguments_without_a_name_are_refused_at_definition() -> None:
    def many(*items: int) -> None: ...
    def open_ended(**items: int) -> None: ...
    def by_place(a: int, /) -> None: ...

    for function in (many, open_ended, by_place):
        with pytest.raises(ConfigurationError, match=r"task 't' has the parameter .* by name"):
            Signature(function, "t")


def test_an_annotation_that_exists_only_for_type_checkers_is_refused_with_advice() -> None:
    def task(share: Fraction) -> None: ...

    with pytest.raises(ConfigurationError, match=r"task 't' cannot be read: name 'Fraction'"):
        Signature(task, "t")


def test_a_type_that_cannot_be_stored_is_refused_at_definition() -> None:
    def takes(job: Windlass) -> None: ...
    def returns() -> Windlass: ...  # type: ignore[empty-body]

    with pytest.raises(ConfigurationError, match=r"parameter 'job' of task 't' cannot be stored"):
        Signature(takes, "t")
    with pytest.raises(ConfigurationError, match=r"the result of task 't' cannot be stored"):
        Signature(returns, "t")


# -- wrong arguments


def test_an_invalid_argument_is_named_with_its_value() -> None:
    def task(path: str, height: int) -> None: ...

    with pytest.raises(InvalidArgumentError) as caught:
        Signature(task, "t").store(("a.mov",), {"height": "tall"})
    message = str(caught.value)
    assert "task 't'" in message
    assert "argument 'height'" in message
    assert "integer" in message
    assert "'tall'" in message
    assert "path" not in message


def test_the_invalid_field_of_an_argument_is_named() -> None:
    def task(order: Order) -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"argument 'order\.lines\.0\.x'"):
        Signature(task, "t").store(({"number": 1, "at": NOON, "lines": [{"x": "?"}]},), {})


def test_a_missing_and_an_unknown_argument_are_named() -> None:
    def task(path: str) -> None: ...

    with pytest.raises(InvalidArgumentError, match="path"):
        Signature(task, "t").store((), {})
    with pytest.raises(InvalidArgumentError, match="color"):
        Signature(task, "t").store(("a",), {"color": "red"})


@pytest.mark.parametrize("value", [object(), b"\xff\xfe", {"deep": [object()]}])
def test_an_argument_that_cannot_be_stored_is_named(value: Any) -> None:
    def task(fine: Any, odd: Any) -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"argument 'odd' cannot be stored"):
        Signature(task, "t").store((1, value), {})


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"deep": -float("inf")}])
def test_a_number_that_json_cannot_represent_is_refused(value: Any) -> None:
    def task(a: Any) -> Any: ...

    signature = Signature(task, "t")
    for stored in (signature.store((value,), {}), signature.result(value)):
        with pytest.raises(CodecError, match="cannot encode the"):
            JsonCodec().encode(stored, Purpose.PAYLOAD)


def test_stored_arguments_are_validated_again_and_errors_are_terminal() -> None:
    def task(height: int) -> None: ...

    with pytest.raises(InvalidInput, match="argument 'height'"):
        Signature(task, "t").restore({"height": "tall"})
    with pytest.raises(InvalidInput, match="argument 'height'"):
        Signature(task, "t").restore({})


def test_an_argument_that_the_task_no_longer_has_is_ignored() -> None:
    def task(a: int) -> None: ...

    assert Signature(task, "t").restore({"a": 1, "gone": 2}) == {"a": 1}


# -- round trips


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 2**60),
        (float, 0.1),
        (str, "ü 漢字 🎬 \n"),
        (bool, True),
        (UUID, ID),
        (datetime, NOON),
        (timedelta, timedelta(minutes=3, microseconds=5)),
        (Decimal, Decimal("1.10")),
        (Path, Path("/tmp/a.mov")),
        (Color, Color.RED),
        (Point, Point(1, 2.5)),
        (Order, Order(number=1, at=NOON, lines=[Point(1)])),
        (Camel, Camel(firstName="Ada")),
        (Strict, Strict(id=ID, at=NOON, tags=("a", "b"))),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (dict[int, UUID], {7: ID}),
        (list[Point | None], [Point(1), None]),
        (bytes, b"plain text"),
        (Annotated[int, pydantic.Field(ge=0)], 5),
    ],
    ids=str,
)
def test_a_value_round_trips(kind: Any, value: Any) -> None:
    def task(a: Any) -> Any: ...

    task.__annotations__ = {"a": kind, "return": kind}
    assert round_trip(task, value) == {"a": value}
    signature = Signature(task, "t")
    result = json.loads(json.dumps(signature.result(value)))
    assert signature.restore_result(result) == value


def test_a_result_of_an_older_type_is_returned_as_stored() -> None:
    def task() -> int: ...  # type: ignore[empty-body]

    assert Signature(task, "t").restore_result({"was": "a dict"}) == {"was": "a dict"}


def test_the_result_of_a_task_without_a_return_value_is_none() -> None:
    def task() -> None: ...

    signature = Signature(task, "t")
    assert signature.result(None) is None
    assert signature.restore_result(None) is None


@pytest.mark.parametrize("value", [object(), b"\xff", {"deep": object()}])
def test_a_result_that_cannot_be_stored_names_its_task(value: Any) -> None:
    def task() -> Any: ...

    with pytest.raises(InvalidResult, match="the result of task 't' cannot be stored"):
        Signature(task, "t").result(value)


# -- the registry and the decorator


def test_two_tasks_with_one_name_are_refused_with_both_locations() -> None:
    def first() -> None: ...
    def second() -> None: ...

    registry = Registry()
    registry.add(TaskSpec("same", first, TaskOptions()))
    registry.add(TaskSpec("same", first, TaskOptions()))  # a module that is imported twice
    with pytest.raises(ConfigurationError, match=r"two tasks are named 'same'") as caught:
        registry.add(TaskSpec("same", second, TaskOptions()))
    assert str(caught.value).count(f"{__file__}:") == 2
    assert [spec.function for spec in registry] == [first]


def test_a_task_has_the_name_of_its_function_or_the_given_name() -> None:
    app = Windlass("memory:")

    @app.task
    def plain() -> None: ...

    @app.task(name="other")
    def named() -> None: ...

    assert plain.name.endswith("plain")
    assert plain.name.startswith(__name__)
    assert named.name == "other"


def test_calling_a_task_runs_its_function() -> None:
    app = Windlass("memory:")

    @app.task
    def double(a: int) -> int:
        return 2 * a

    assert double(4) == 8


def test_an_unknown_task_option_is_named_with_the_valid_ones() -> None:
    app = Windlass("memory:")
    with pytest.raises(ConfigurationError, match=r"unknown options: retries; valid are .*max_ret"):
        app.task(retries=3, queue="slow")


def test_only_functions_can_be_tasks() -> None:
    app = Windlass("memory:")
    with pytest.raises(ConfigurationError, match="is not a function"):
        app.task(Point(1))  # type: ignore[call-overload]


def test_retry_on_accepts_one_error_class_or_several() -> None:
    app = Windlass("memory:")

    @app.task(retry_on=ValueError, terminal_on=[KeyError, OSError])
    def task() -> None: ...

    assert task.spec.options.retry_on == (ValueError,)
    assert task.spec.options.terminal_on == (KeyError, OSError)
    for wrong in ("ValueError", 5, [ValueError()]):
        with pytest.raises(ConfigurationError, match=r"retry_on is .* exception classes"):
            app.task(retry_on=wrong)


def test_invalid_task_options_are_refused_at_definition() -> None:
    app = Windlass("memory:")
    for settings in ({"timeout": "soon"}, {"timeout": 0}, {"lease": -1}, {"max_retries": -1}):
        with pytest.raises(InvalidArgumentError, match=next(iter(settings))):
            app.task(**settings)


async def test_a_payload_that_is_too_large_is_refused_with_advice() -> None:
    app = Windlass("memory:")

    @app.task
    def task(text: str) -> None: ...

    with pytest.raises(TooLargeError, match=r"payload is .* the limit is .* object store"):
        await task.aenqueue("x" * MAX_BLOB)


def test_an_unknown_argument_is_named_with_the_valid_ones() -> None:
    def task(path: str, size: int = 1) -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"no argument 'pth'; it takes 'path', 'size'"):
        Signature(task, "t").store((), {"pth": "x"})


def test_a_model_may_be_completed_after_the_task_is_defined() -> None:
    given = Early(later=Later(number=1))
    stored = {"early": {"later": {"number": 1}}}
    assert EARLY.store((given,), {}) == stored
    assert EARLY.restore(stored) == {"early": given}
    assert EARLY.result(given) == stored["early"]
