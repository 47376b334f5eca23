"""Decisions about new jobs: created, duplicate, conflict or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.factories import JOB, NOW, OTHER, request, row
from tests.core.job_simulation import reach

from windlass.core.decisions.enqueue import (
    Conflicts,
    EnqueueDecision,
    EnqueueResult,
    EnqueueStatus,
    batch_error,
    decide_enqueue,
)
from windlass.core.errors import ConflictError, InvalidArgumentError, NotFoundError
from windlass.core.ids import uuid7
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL, WAITING, State

CREATED, DUPLICATE = EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE
CONFLICT, REFUSED = EnqueueStatus.CONFLICT, EnqueueStatus.REFUSED


def in_state(state: State, **overrides: Any) -> JobRow:
    return replace(reach(state).row, **({"id": OTHER} | overrides))


def test_a_job_without_conflicts_is_created() -> None:
    assert decide_enqueue(request(), Conflicts()) == EnqueueDecision(CREATED)


# -- ids


@pytest.mark.parametrize("state", State)
def test_a_repeated_id_returns_the_stored_job(state: State) -> None:
    stored = in_state(state, id=JOB, digest=b"d")
    assert decide_enqueue(request(digest=b"d"), Conflicts(same_id=stored)) == EnqueueDecision(
        CREATED, stored
    )


def test_the_same_id_for_a_different_request_is_a_conflict() -> None:
    decision = decide_enqueue(request(digest=b"new"), Conflicts(same_id=row(digest=b"old")))
    assert decision.status is CONFLICT
    assert isinstance(decision.error, ConflictError)
    assert str(JOB) in str(decision.error)


@pytest.mark.parametrize(("requested", "stored"), [(None, b"d"), (b"d", None), (None, None)])
def test_a_missing_digest_matches_any_request(
    requested: bytes | None, stored: bytes | None
) -> None:
    assert (
        decide_enqueue(request(digest=requested), Conflicts(same_id=row(digest=stored))).status
        is CREATED
    )


def test_another_owners_job_with_the_same_id_is_not_revealed() -> None:
    foreign = row(owner="bob", digest=b"d", task="secret.task")
    decision = decide_enqueue(request(owner="ann", digest=b"d"), Conflicts(same_id=foreign))
    assert decision.status is CONFLICT
    assert decision.existing is None
    assert "bob" not in str(decision.error)
    assert "secret" not in str(decision.error)


# -- request ids


@pytest.mark.parametrize("state", State)
def test_a_repeated_request_id_returns_the_stored_job(state: State) -> None:
    stored = in_state(state, request_id="r", digest=b"d")
    decision = decide_enqueue(request(request_id="r", digest=b"d"), Conflicts(same_request=stored))
    assert decision == EnqueueDecision(DUPLICATE, stored)


def test_the_same_request_id_with_a_different_payload_is_a_conflict() -> None:
    stored = in_state(State.QUEUED, request_id="r", digest=b"old")
    decision = decide_enqueue(
        request(request_id="r", digest=b"new"), Conflicts(same_request=stored)
    )
    assert decision.status is CONFLICT
    assert isinstance(decision.error, ConflictError)
    assert "'r'" in str(decision.error)
    assert str(OTHER) in str(decision.error)


def test_the_id_is_checked_before_the_request_id() -> None:
    stored, other = row(digest=b"d"), in_state(State.QUEUED, digest=b"e")
    decision = decide_enqueue(request(digest=b"d"), Conflicts(same_id=stored, same_request=other))
    assert decision == EnqueueDecision(CREATED, stored)


def test_a_repeated_request_displaces_no_job() -> None:
    stored, conflicting = in_state(State.QUEUED), in_state(State.QUEUED)
    new = request(request_id="r", unique_key="k", debounce=True)
    decision = decide_enqueue(new, Conflicts(same_request=stored, same_key=conflicting))
    assert decision == EnqueueDecision(DUPLICATE, stored)


# -- unique keys and debounce


@pytest.mark.parametrize("state", sorted(set(State) - FINAL))
def test_an_active_job_with_the_same_key_makes_the_new_one_a_duplicate(state: State) -> None:
    conflicting = in_state(state, unique_key="k")
    decision = decide_enqueue(request(unique_key="k"), Conflicts(same_key=conflicting))
    assert decision == EnqueueDecision(DUPLICATE, conflicting)


@pytest.mark.parametrize("state", sorted(WAITING))
def test_a_debounced_job_displaces_a_waiting_job(state: State) -> None:
    conflicting = in_state(state, unique_key="k")
    decision = decide_enqueue(
        request(unique_key="k", debounce=True), Conflicts(same_key=conflicting)
    )
    assert decision == EnqueueDecision(CREATED, displace=conflicting)


def test_a_debounced_job_does_not_displace_a_running_job() -> None:
    conflicting = in_state(State.RUNNING, unique_key="k")
    decision = decide_enqueue(
        request(unique_key="k", debounce=True), Conflicts(same_key=conflicting)
    )
    assert decision == EnqueueDecision(DUPLICATE, conflicting)


# -- retries of finished jobs


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_finished_job_can_be_retried(state: State) -> None:
    decision = decide_enqueue(request(retry_of=OTHER), Conflicts(origin=in_state(state)))
    assert decision == EnqueueDecision(CREATED)


def test_a_retry_of_a_missing_job_is_refused() -> None:
    decision = decide_enqueue(request(retry_of=OTHER), Conflicts())
    assert decision.status is REFUSED
    assert isinstance(decision.error, NotFoundError)
    assert str(OTHER) in str(decision.error)


def test_a_retry_of_another_owners_job_is_refused_like_a_missing_job() -> None:
    new = request(retry_of=OTHER, owner="ann")
    foreign = decide_enqueue(new, Conflicts(origin=in_state(State.FAILED, owner="bob")))
    missing = decide_enqueue(new, Conflicts())
    assert foreign.existing is None
    assert (foreign.status, str(foreign.error)) == (missing.status, str(missing.error))


@pytest.mark.parametrize("state", sorted(set(State) - FINAL))
def test_a_job_that_is_not_finished_cannot_be_retried(state: State) -> None:
    decision = decide_enqueue(request(retry_of=OTHER), Conflicts(origin=in_state(state)))
    assert decision.status is CONFLICT
    assert isinstance(decision.error, ConflictError)
    assert state.value in str(decision.error)


def test_a_second_retry_is_a_duplicate_of_an_active_one() -> None:
    origin, active = in_state(State.FAILED), in_state(State.RUNNING)
    decision = decide_enqueue(
        request(retry_of=OTHER), Conflicts(origin=origin, active_retry=active)
    )
    assert decision == EnqueueDecision(DUPLICATE, active)


def test_a_retry_still_respects_its_unique_key() -> None:
    conflicting = in_state(State.QUEUED)
    new = request(retry_of=OTHER, unique_key="k")
    decision = decide_enqueue(new, Conflicts(origin=in_state(State.FAILED), same_key=conflicting))
    assert decision == EnqueueDecision(DUPLICATE, conflicting)


# -- the decision


def no_conflicts(_: object) -> Conflicts:
    return Conflicts()


def test_a_batch_may_repeat_a_job_but_not_reuse_its_id() -> None:
    new = request(id=JOB, digest=b"1")
    assert batch_error([new, new], no_conflicts) is None
    for other in (request(id=JOB, digest=b"2"), request(id=JOB, digest=b"1", owner="eve")):
        error = batch_error([new, other], no_conflicts)
        assert isinstance(error, ConflictError)
        assert str(error) == f"job id {JOB} is taken; enqueue with a new id"


def test_the_parents_of_a_duplicate_are_not_checked() -> None:
    """Like those of a duplicate of a stored job."""
    gone = uuid7()
    first = request(id=JOB, unique_key="k")
    assert (
        batch_error([first, request(id=OTHER, unique_key="k", depends_on=(gone,))], no_conflicts)
        is None
    )
    error = batch_error(
        [first, request(id=OTHER, unique_key="l", depends_on=(gone,))], no_conflicts
    )
    assert isinstance(error, NotFoundError)


def test_the_row_of_a_created_job_is_made_from_the_request() -> None:
    decision = EnqueueResult(CREATED, request(retry_of=OTHER), at=NOW, serial=7, root_id=OTHER)
    made = decision.row
    assert made is not None
    assert (made.id, made.serial, made.created_at) == (JOB, 7, NOW)
    assert (made.retry_of, made.lineage) == (OTHER, OTHER)


def test_the_row_of_a_repeat_is_the_stored_one() -> None:
    stored = in_state(State.RUNNING)
    assert EnqueueResult(CREATED, request(), existing=stored).row == stored
    assert EnqueueResult(DUPLICATE, request(), existing=stored).row == stored


def test_a_refused_request_has_no_row() -> None:
    decision = EnqueueResult(REFUSED, request(), error=InvalidArgumentError("no"))
    assert decision.row is None
    assert not decision.accepted


@pytest.mark.parametrize("status", EnqueueStatus)
def test_created_and_duplicate_are_accepted(status: EnqueueStatus) -> None:
    assert EnqueueResult(status, request()).accepted == (status in {CREATED, DUPLICATE})
