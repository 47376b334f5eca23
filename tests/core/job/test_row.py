"""New rows, their properties, and validation of requests."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.core.factories import (
    JOB,
    NOW,
    OTHER,
    TOKEN,
    assert_valid_row,
    request,
    row,
)
from tests.core.job_simulation import JobSimulation, reach

from windlass.core import size_limits
from windlass.core.clock import after
from windlass.core.errors import InvalidArgumentError, TooLargeError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Lease
from windlass.core.job.new_job import NewJob, check_new_job
from windlass.core.job.retry_policy import MAX_DELAY, Policy
from windlass.core.job.row import initial_state, new_row
from windlass.core.job.state import State, Trigger

NAN, INF = float("nan"), float("inf")

# -- initial state


def test_a_job_that_can_run_at_once_is_created_and_queued_in_the_same_write() -> None:
    job = row()
    assert job.state is State.QUEUED
    assert job.created_at == job.queued_at == job.updated_at == NOW
    assert (job.seq, job.queued_seq, job.position) == (2, 2, 1)
    assert job.due_at is None
    assert_valid_row(job)


@pytest.mark.parametrize(
    "overrides",
    [{"delay": 5.0}, {"run_at": NOW + 5_000_000}, {"run_at": NOW + 5_000_000, "delay": 9.0}],
)
def test_a_job_with_a_later_time_waits_for_it(overrides: dict[str, Any]) -> None:
    job = row(**overrides)
    assert (job.state, job.due_at) == (State.CREATED, after(NOW, 5))
    assert (job.queued_at, job.queued_seq, job.position, job.seq) == (None, 0, None, 1)
    assert_valid_row(job)


@pytest.mark.parametrize("overrides", [{"run_at": NOW}, {"run_at": NOW - 1}, {"run_at": 0}])
def test_a_run_at_in_the_past_means_at_once(overrides: dict[str, Any]) -> None:
    assert row(**overrides).state is State.QUEUED
    assert row(**overrides).queued_at == NOW


def test_a_held_job_is_created_and_waits_for_its_submit() -> None:
    job = row(hold=True)
    assert (job.state, job.held, job.due_at, job.queued_at) == (State.CREATED, True, None, None)
    assert row(hold=True, delay=5).due_at == after(NOW, 5)


def test_an_expiry_is_an_instant_of_the_stores_clock() -> None:
    assert row(expires_in=7).expires_at == after(NOW, 7)
    assert row(expires_at=NOW + 9).expires_at == NOW + 9
    assert row().expires_at is None
    assert initial_state(request(expires_at=NOW + 9, expires_in=7), NOW).expires_at == NOW + 9


def test_a_row_keeps_all_fields_of_the_request() -> None:
    new = NewJob(
        id=JOB,
        task="t",
        queue="q",
        payload=b"1",
        priority=-3,
        policy=Policy(max_retries=7),
        lease=12.0,
        owner="ann",
        team="red",
        tags=("a",),
        headers={"correlation-id": "c"},
        request_id="r",
        digest=b"d",
        unique_key="k",
        retry_of=OTHER,
    )
    job = new_row(new, NOW, 9, root_id=OTHER)
    same = ("id", "task", "queue", "payload", "priority", "policy", "owner", "team", "tags")
    also = ("headers", "request_id", "digest", "unique_key", "retry_of")
    for name in same + also:
        assert getattr(job, name) == getattr(new, name)
    assert (job.lease_seconds, job.serial, job.root_id) == (12.0, 9, OTHER)


def test_a_new_job_has_no_attempts() -> None:
    job = row()
    assert (job.attempt, job.fence, job.retry_count, job.crash_count, job.percent) == (0,) * 5
    assert (job.token, job.worker, job.lease_until, job.error, job.result) == (None,) * 5
    assert job.trigger is Trigger.ENQUEUE


def test_an_owner_is_never_null() -> None:
    assert row().owner == ""
    assert row().queue == "default"


# -- properties of a row


def test_only_a_claimed_job_has_a_lease() -> None:
    sim = JobSimulation.start().claim()
    assert sim.row.token is not None
    assert sim.row.lease == Lease(JOB, 1, sim.row.token)
    with pytest.raises(AssertionError):
        _ = row().lease


def test_a_lineage_is_named_by_its_first_job() -> None:
    assert row().lineage == JOB
    assert replace(row(), root_id=OTHER).lineage == OTHER


def test_the_correlation_id_is_a_header_or_the_jobs_own_id() -> None:
    assert row(headers={"correlation-id": "c-1"}).correlation_id == "c-1"
    assert row().correlation_id == str(row().id)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", [None, "voice"])
def test_a_job_that_ended_without_success_after_a_step_can_be_resumed(
    state: State, step: str | None
) -> None:
    job = replace(reach(state).row, last_step=step)
    expected = state in {State.FAILED, State.CANCELED} and step is not None
    assert job.can_resume == expected


@pytest.mark.parametrize("state", State)
def test_a_row_is_final_when_its_state_is(state: State) -> None:
    assert reach(state).row.final == state.final


@pytest.mark.parametrize(
    ("overrides", "plain"),
    [
        ({}, True),
        ({"delay": 5.0}, True),
        ({"request_id": "r"}, False),
        ({"unique_key": "k"}, False),
        ({"retry_of": OTHER}, False),
    ],
)
def test_a_plain_request_can_conflict_only_by_its_id(
    overrides: dict[str, Any], plain: bool
) -> None:
    assert request(**overrides).plain == plain


def test_mypy_refuses_assignments_to_a_row() -> None:
    # If rows were not frozen for mypy, it would report the ignore below as unused.
    job = row()
    job.token = TOKEN  # type: ignore[misc]
    assert row().token is None, "rows do not share state"


# -- requests that are refused

AT_THE_LIMIT: list[dict[str, Any]] = [
    {},
    {"queue": "q" * 128},
    {"task": "t" * 128},
    {"payload": b"x" * 1024 * 1024},
    {"priority": 2**31 - 1},
    {"priority": -(2**31) + 1},
    {"delay": MAX_DELAY},
    {"owner": "o" * 512},
    {"request_id": "r" * 512},
    {"tags": tuple(f"t{n}" for n in range(32))},
    {"tags": ("t" * 512,)},
    {"headers": {"k": "v" * (16 * 1024 - 1)}},
    {"lease": 0.001},
    {"expires_in": 0.001},
]


@pytest.mark.parametrize(
    "overrides", AT_THE_LIMIT, ids=lambda overrides: ",".join(overrides) or "plain"
)
def test_values_at_their_limits_are_accepted(overrides: dict[str, Any]) -> None:
    check_new_job(request(**overrides))


BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"queue": ""}, "queue"),
    ({"queue": "q" * 129}, "queue"),
    ({"task": ""}, "task"),
    ({"task": "t" * 129}, "task"),
    ({"priority": 2**31}, "priority"),
    ({"priority": -(2**31)}, "priority"),
    ({"delay": -1.0}, "delay"),
    ({"delay": NAN}, "delay"),
    ({"delay": INF}, "delay"),
    ({"delay": MAX_DELAY * 1.01}, "delay"),
    ({"lease": 0.0}, "lease"),
    ({"lease": -1.0}, "lease"),
    ({"expires_in": 0.0}, "expires_in"),
    ({"expires_in": -1.0}, "expires_in"),
    ({"owner": "o" * 513}, "owner"),
    ({"team": "o" * 513}, "team"),
    ({"request_id": "o" * 513}, "request_id"),
    ({"unique_key": "o" * 513}, "unique_key"),
    ({"tags": ("",)}, "tag"),
    ({"tags": ("t" * 513,)}, "tag"),
    ({"tags": tuple(f"t{n}" for n in range(33))}, "33 tags"),
    ({"headers": {"k": "v" * 16 * 1024}}, "headers"),
]


@pytest.mark.parametrize(("overrides", "named"), BEYOND)
def test_values_beyond_their_limits_are_refused_with_the_name_of_the_field(
    overrides: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        check_new_job(request(**overrides))


# Each of these would raise inside a store and fail the other items. An invalid lease would raise at
# every claim, so that one job stops its queue.
UNSTORABLE: list[tuple[dict[str, Any], str]] = [
    ({"lease": NAN}, "lease"),
    ({"lease": INF}, "lease"),
    ({"lease": 1e30}, "lease"),
    ({"expires_in": NAN}, "expires_in"),
    ({"expires_in": INF}, "expires_in"),
    ({"expires_in": 1e30}, "expires_in"),
    ({"run_at": 2**63}, "run_at"),
    ({"expires_at": 2**63}, "expires_at"),
    ({"task": "\ud800"}, "task"),
    ({"owner": "\ud800"}, "owner"),
    ({"unique_key": "\ud800"}, "unique_key"),
    ({"tags": ("\ud800",)}, "tag"),
    ({"headers": {"k": "\ud800"}}, "headers"),
]


@pytest.mark.parametrize(("overrides", "named"), UNSTORABLE, ids=ascii)
def test_values_that_no_store_can_write_are_refused(overrides: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        check_new_job(request(**overrides))


def test_a_payload_over_1_mib_is_refused_with_advice() -> None:
    with pytest.raises(TooLargeError, match=r"payload is 1,048,577 bytes.*object store"):
        check_new_job(request(payload=b"x" * (size_limits.MAX_BLOB + 1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"priority": "high"}, "priority is 'high'; it must be an integer"),
        ({"request_id": 17}, "request_id is 17; it must be a string"),
        ({"id": "abc"}, "id is 'abc'; it must be a UUID"),
        ({"hold": "no"}, "hold is 'no'; it must be True or False"),
        ({"tags": "abc"}, "tags is 'abc'; it must be a tuple of strings"),
        ({"payload": "{}"}, "payload is '{}'; it must be bytes"),
        ({"queue": 5}, "queue is 5; it must be a string"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_name(
    wrong: dict[str, Any], message: str
) -> None:
    new = NewJob(**{"id": uuid7(), "task": "t", **wrong})
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        check_new_job(new)
