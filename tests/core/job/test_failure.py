"""Failures: encoding, and explanations for users."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core import errors
from windlass.core.job import failure
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.failure_details import details

FAILURES = st.builds(
    Failure,
    code=st.text(max_size=20),
    kind=st.sampled_from(ErrorKind),
    step=st.one_of(st.none(), st.text(max_size=20)),
    body=st.one_of(st.none(), st.binary(max_size=20)),
    attempt=st.integers(0, 1000),
    at=st.integers(0, 2**53),
)


@settings(max_examples=60)
@given(FAILURES)
def test_a_failure_round_trips(stored: Failure) -> None:
    assert Failure.decode(stored.encode(), stored.body) == stored
    assert Failure.of(stored.fields(), stored.body) == stored


def test_the_encoded_failure_omits_the_body() -> None:
    stored = Failure(code="io", kind=ErrorKind.RETRYABLE, body=b"secret", attempt=2, at=5)
    assert json.loads(stored.encode()) == {
        "code": "io",
        "kind": "RETRYABLE",
        "step": None,
        "attempt": 2,
        "at": 5,
    }


def test_the_error_kinds_are_those_of_the_specification() -> None:
    assert [kind.value for kind in ErrorKind] == ["RETRYABLE", "TERMINAL"]


def test_an_unknown_kind_is_not_taken() -> None:
    fields = Failure(code="io", kind=ErrorKind.TERMINAL).fields() | {"kind": "MAYBE"}
    with pytest.raises(ValueError, match="MAYBE"):
        Failure.of(fields, None)


def test_the_codes_that_maintenance_gives_are_stable() -> None:
    given_ = (failure.CRASHED, failure.EXPIRED, failure.TIMEOUT, failure.UNKNOWN_TASK)
    assert given_ == ("crashed", "expired", "timeout", "unknown_task")
    assert failure.PARENT_FAILED == "parent_failed"


def test_details_name_the_task_step_and_attempt() -> None:
    explanation = details(
        Failure(code="io", kind=ErrorKind.RETRYABLE, step="fetch", attempt=4),
        task="mail.send",
        stage="voice",
    )
    assert explanation.summary == "mail.send failed with io in step 'fetch' in attempt 4"
    assert explanation.stage == "voice"
    assert explanation.category
    assert explanation.advice


def test_details_without_a_step_name_none() -> None:
    explanation = details(
        Failure(code="io", kind=ErrorKind.TERMINAL, attempt=1), task="mail.send", stage=None
    )
    assert explanation.summary == "mail.send failed with io in attempt 1"
    assert explanation.stage is None


@pytest.mark.parametrize("kind", ErrorKind)
def test_an_unknown_code_is_explained_by_its_kind(kind: ErrorKind) -> None:
    other = ErrorKind.TERMINAL if kind is ErrorKind.RETRYABLE else ErrorKind.RETRYABLE
    mine = details(Failure(code="custom", kind=kind), task="t", stage=None)
    theirs = details(Failure(code="custom", kind=other), task="t", stage=None)
    assert mine.category != theirs.category


@pytest.mark.parametrize(
    "code",
    [
        "crashed",
        "expired",
        "timeout",
        "unknown_task",
        "parent_failed",
        *(kind.code for kind in errors.TerminalError.__subclasses__()),
    ],
)
def test_every_known_code_has_separate_advice(code: str) -> None:
    general = {
        details(Failure(code="custom", kind=kind), task="t", stage=None).advice
        for kind in ErrorKind
    }
    explanation = details(Failure(code=code, kind=ErrorKind.TERMINAL), task="t", stage=None)
    assert explanation.advice not in general
