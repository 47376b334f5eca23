"""One tree of errors, each with a code that never changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windlass.core import errors
from windlass.core.errors import InvalidArgumentError, RetryAfter, Snooze, WindlassError

CODES = {
    "WindlassError": "windlass_error",
    "TaskError": "task_error",
    "TerminalError": "terminal",
    "InvalidInput": "invalid_input",
    "InvalidResult": "invalid_result",
    "MissingInput": "missing_input",
    "ConfigurationError": "configuration",
    "AuthenticationError": "authentication",
    "QuotaExceeded": "quota_exceeded",
    "InsufficientResources": "insufficient_resources",
    "ConstraintViolation": "constraint_violation",
    "ChildrenFailed": "children_failed",
    "RetryAfter": "retry_after",
    "Snooze": "snooze",
    "Cancel": "cancel",
    "RequestError": "request",
    "InvalidArgumentError": "invalid_argument",
    "TooLargeError": "too_large",
    "NotFoundError": "not_found",
    "ConflictError": "conflict",
    "StaleLeaseError": "stale_lease",
    "StoreError": "store",
    "StoreUnavailableError": "store_unavailable",
    "StoreCorruptError": "store_corrupt",
    "StoreDeniedError": "store_denied",
    "SchemaError": "schema",
    "CodecError": "codec",
    "JobFailedError": "job_failed",
}


def tree(kind: type[WindlassError] = WindlassError) -> list[type[WindlassError]]:
    below = [found for child in kind.__subclasses__() for found in tree(child)]
    return [found for found in [kind, *below] if found.__module__ == errors.__name__]


def test_codes_are_stable() -> None:
    assert {kind.__name__: kind.code for kind in tree()} == CODES


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in tree()]
    assert len(codes) == len(set(codes))


def test_every_error_class_has_its_own_code() -> None:
    for kind in tree():
        assert "code" in vars(kind)


def test_every_class_is_drawn_in_the_tree_on_the_first_screen() -> None:
    drawing = errors.__doc__ or ""
    for kind in tree():
        assert kind.__name__ in drawing


@pytest.mark.parametrize(
    "name",
    [
        "InvalidInput",
        "MissingInput",
        "ConfigurationError",
        "AuthenticationError",
        "QuotaExceeded",
        "InsufficientResources",
        "ConstraintViolation",
    ],
)
def test_the_terminal_errors_of_the_contract_are_terminal(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.TerminalError)


@pytest.mark.parametrize("kind", [errors.RetryAfter, errors.Snooze, errors.Cancel])
def test_control_flow_errors_of_a_task_are_not_terminal(kind: type[WindlassError]) -> None:
    assert issubclass(kind, errors.TaskError)
    assert not issubclass(kind, errors.TerminalError)


def test_retry_after_and_snooze_carry_their_delay() -> None:
    assert errors.RetryAfter(1.5).delay == 1.5
    assert str(errors.RetryAfter(1.5)) == "retry after 1.5 s"
    assert errors.Snooze(60).delay == 60
    assert str(errors.Snooze(60, "not yet")) == "not yet"


def test_a_cancel_error_has_its_reason() -> None:
    assert errors.Cancel("obsolete").reason == str(errors.Cancel("obsolete")) == "obsolete"
    assert errors.Cancel().reason == ""
    assert str(errors.Cancel()) == "the task canceled itself"


def test_a_job_failed_error_has_the_state_and_the_remote_traceback() -> None:
    error = errors.JobFailedError("it failed", state="failed", remote_traceback="Traceback …")
    assert (str(error), error.state, error.remote_traceback) == (
        "it failed",
        "failed",
        "Traceback …",
    )


def test_errors_can_be_caught_by_the_builtin_that_means_the_same() -> None:
    assert issubclass(errors.InvalidArgumentError, ValueError)
    assert issubclass(errors.NotFoundError, LookupError)


@pytest.mark.parametrize("kind", [RetryAfter, Snooze])
@pytest.mark.parametrize(("given", "seconds"), [(5, 5.0), ("1m", 60.0), (timedelta(hours=1), 3600)])
def test_a_task_may_give_its_delay_as_text(
    kind: type[RetryAfter | Snooze], given: Any, seconds: float
) -> None:
    assert kind(given).delay == seconds


@pytest.mark.parametrize("kind", [RetryAfter, Snooze])
@pytest.mark.parametrize("given", ["soon", -1, None, float("nan")])
def test_an_invalid_delay_is_refused_where_it_is_raised(
    kind: type[RetryAfter | Snooze], given: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match="delay is"):
        kind(given)
