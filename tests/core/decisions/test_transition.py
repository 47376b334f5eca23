"""Validation of transitions, before the job is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.factories import JOB, TERMINAL, request

from windlass.core import size_limits
from windlass.core.decisions.transition import (
    ApplyResult,
    Status,
    Transition,
    check_records,
    check_transition,
)
from windlass.core.errors import InvalidArgumentError, TooLargeError
from windlass.core.event import LIFECYCLE, EventType, Record
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.job.state import State, Trigger

KIB = 1024


def transition(**overrides: Any) -> Transition:
    values: dict[str, Any] = {"job_id": JOB, "fence": 1, "trigger": Trigger.SUCCEED} | overrides
    return Transition(**values)


def test_values_at_their_limits_are_accepted() -> None:
    check_transition(transition(result=b"x" * 1024 * KIB))
    check_transition(transition(error=replace(TERMINAL, body=b"x" * 64 * KIB)))
    check_transition(transition(delay=0.0))
    check_transition(transition(delay=MAX_DELAY))
    check_transition(transition(children=(request(),)))
    check_records([Record(n=1, type=EventType.LOG, body=b"x" * 64 * KIB)])
    check_records([Record(n=1, type=EventType.STEP_STATUS, step="s", checkpoint=b"x" * 1024 * KIB)])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"result": b"x" * (1024 * KIB + 1)}, "result"),
        ({"error": replace(TERMINAL, body=b"x" * (64 * KIB + 1))}, "error"),
        (
            {"records": (Record(n=1, type=EventType.LOG, body=b"x" * (64 * KIB + 1)),)},
            "log event",
        ),
        (
            {
                "records": (
                    Record(
                        n=1,
                        type=EventType.STEP_STATUS,
                        step="voice",
                        checkpoint=b"x" * (1024 * KIB + 1),
                    ),
                )
            },
            "checkpoint of step 'voice'",
        ),
        ({"children": (request(payload=b"x" * (1024 * KIB + 1)),)}, "payload"),
    ],
    ids=["result", "error", "event", "checkpoint", "child"],
)
def test_oversize_data_is_refused_with_its_name_and_advice(
    overrides: dict[str, Any], named: str
) -> None:
    with pytest.raises(TooLargeError, match=named) as caught:
        check_transition(transition(**overrides))
    assert "object store" in str(caught.value)


@pytest.mark.parametrize(
    "delay", [-1.0, float("-inf"), float("nan"), float("inf"), MAX_DELAY * 2, 1e30]
)
def test_an_invalid_delay_of_a_transition_is_refused(delay: float) -> None:
    with pytest.raises(InvalidArgumentError, match="delay"):
        check_transition(transition(trigger=Trigger.SNOOZE, delay=delay))


@pytest.mark.parametrize("step", [None, ""])
def test_a_checkpoint_needs_the_name_of_its_step(step: str | None) -> None:
    with pytest.raises(InvalidArgumentError, match="name of its step"):
        check_records([Record(n=1, type=EventType.STEP_STATUS, step=step, checkpoint=b"1")])


@pytest.mark.parametrize("kind", sorted(LIFECYCLE))
def test_a_task_cannot_record_lifecycle_events(kind: EventType) -> None:
    # Such a line would end every reader's stream, and no fold could make sense of it.
    with pytest.raises(InvalidArgumentError, match=kind.value):
        check_records([Record(n=1, type=kind, status="succeeded")])


@pytest.mark.parametrize("kind", sorted(set(EventType) - LIFECYCLE))
def test_a_task_may_record_all_other_events(kind: EventType) -> None:
    check_records([Record(n=1, type=kind)])


def test_an_invalid_child_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="queue"):
        check_transition(transition(children=(request(queue=""),)))


@pytest.mark.parametrize("status", Status)
def test_only_applied_is_applied(status: Status) -> None:
    assert ApplyResult(status, State.RUNNING).applied == (status is Status.APPLIED)


def test_check_size_ignores_missing_data() -> None:
    size_limits.check_size("nothing", None)
    size_limits.check_size("just enough", b"ab", 2)
    with pytest.raises(TooLargeError, match="too much is 3 bytes, the limit is 2"):
        size_limits.check_size("too much", b"abc", 2)
