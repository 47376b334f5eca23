"""Diagnosis: all reasons why a job is not running, the most important first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.core.factories import JOB, NOW, OTHER, RETRYABLE, row
from tests.core.job_simulation import reach

from windlass.core.admission.gates import GateStats, gates_of
from windlass.core.admission.limit import Limit
from windlass.core.clock import SECOND
from windlass.core.diagnosis import GateStatus, Observations, ReasonCode, diagnose
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.worker_presence import LiveWorker


def worker(name: str = "w", **overrides: Any) -> LiveWorker:
    fields: dict[str, Any] = {
        "name": name, "host": "h", "pid": 1, "version": "1", "queues": {"default": 2},
        "tasks": ("mail.send",), "started_at": NOW, "seen_at": NOW,
    }  # fmt: skip
    return LiveWorker(**fields | overrides)


def seen(**overrides: Any) -> Observations:
    fields: dict[str, Any] = {"now": NOW, "workers": [worker()]}
    return Observations(**fields | overrides)


def changed(job: JobRow, **overrides: Any) -> JobRow:
    return JobRow(**{name: getattr(job, name) for name in _fields(job)} | overrides)


def _fields(job: JobRow) -> Sequence[str]:
    return [name for kind in type(job).__mro__ for name in getattr(kind, "__slots__", ())]


def codes(job: JobRow, around: Observations) -> list[ReasonCode]:
    return [reason.code for reason in diagnose(job, around).reasons]


def test_a_queued_job_without_obstacles_is_next() -> None:
    answer = diagnose(row(), seen())
    assert (answer.job_id, answer.state) == (JOB, State.QUEUED)
    assert [reason.code for reason in answer.reasons] == [ReasonCode.READY]
    assert str(answer) == "Next in its queue, should start immediately"


def test_a_diagnosis_counts_the_jobs_ahead() -> None:
    assert codes(row(), seen(ahead=3)) == [ReasonCode.BEHIND]
    assert "3 jobs are ahead" in str(diagnose(row(), seen(ahead=3)))
    assert "1 job is ahead" in str(diagnose(row(), seen(ahead=1)))
    assert "10,000 or more jobs are in its queue" in str(
        diagnose(row(), seen(ahead=None, queued=10_000))
    )


def test_a_queue_without_a_worker_is_reported() -> None:
    no_worker = diagnose(row(), seen(workers=[]))
    assert [reason.code for reason in no_worker.reasons] == [ReasonCode.NO_WORKER]
    assert "No running worker consumes queue 'default'" in str(no_worker)
    assert no_worker.reasons[0].advice == "start one: windlass worker … -Q default"
    others = diagnose(row(), seen(workers=[worker(queues={"media": 1})]))
    assert "(1 run for other queues)" in str(others)


def test_an_unresponsive_worker_does_not_consume_the_queue() -> None:
    unresponsive = worker(
        "unresponsive-1", free=2, free_since=NOW - 100 * SECOND, started_at=NOW - 100 * SECOND
    )
    answer = diagnose(row(), seen(workers=[unresponsive]))
    assert [reason.code for reason in answer.reasons] == [ReasonCode.UNRESPONSIVE]
    assert "unresponsive-1 should consume queue 'default' and has free slots" in str(answer)
    assert codes(row(), seen(workers=[unresponsive, worker()])) == [ReasonCode.READY]
    full = seen(workers=[unresponsive, worker()], running=2)
    assert codes(row(), full) == [ReasonCode.UNRESPONSIVE, ReasonCode.BUSY]


def test_a_stopping_worker_does_not_count_as_a_consumer() -> None:
    assert codes(row(), seen(workers=[worker(stopping=True)])) == [ReasonCode.NO_WORKER]


def test_workers_without_the_task_are_reported() -> None:
    answer = diagnose(row(), seen(workers=[worker(tasks=("a", "b")), worker(queues={"media": 1})]))
    assert [reason.code for reason in answer.reasons] == [ReasonCode.UNKNOWN_TASK]
    assert "has the task 'mail.send'" in str(answer)
    one_does = [worker(tasks=("a",)), worker("x")]
    assert codes(row(), seen(workers=one_does)) == [ReasonCode.READY]


def test_busy_slots_are_a_separate_reason() -> None:
    assert codes(row(), seen(running=1)) == [ReasonCode.READY]
    assert codes(row(), seen(running=2)) == [ReasonCode.BUSY]
    assert codes(row(), seen(running=2, ahead=1)) == [ReasonCode.BUSY, ReasonCode.BEHIND]
    two = [worker(), worker("x")]
    assert codes(row(), seen(running=2, workers=two)) == [ReasonCode.READY]


def test_a_paused_queue_is_the_first_of_all_reasons() -> None:
    answer = diagnose(row(), seen(paused=True, workers=[], ahead=2))
    assert [reason.code for reason in answer.reasons] == [
        ReasonCode.PAUSED, ReasonCode.NO_WORKER, ReasonCode.BEHIND,
    ]  # fmt: skip
    assert answer.reasons[0].advice == "windlass queues resume default"


def test_the_diagnosis_of_a_held_job_names_submit() -> None:
    answer = diagnose(row(hold=True), seen())
    assert [reason.code for reason in answer.reasons] == [ReasonCode.HELD]
    assert answer.reasons[0].advice == f"windlass jobs submit {JOB}"
    both = row(hold=True, delay=60)
    assert codes(both, seen()) == [ReasonCode.HELD, ReasonCode.SCHEDULED]


def test_the_diagnosis_of_a_delayed_job_names_its_due_time() -> None:
    job = row(delay=60)
    answer = diagnose(job, seen())
    [reason] = answer.reasons
    assert (reason.code, reason.at) == (ReasonCode.SCHEDULED, NOW + 60 * SECOND)
    assert "2023-11-14 22:14:20Z" in reason.text
    assert codes(job, seen(paused=True)) == [ReasonCode.SCHEDULED, ReasonCode.PAUSED]
    late = NOW + 61 * SECOND
    assert codes(job, seen(now=late)) == [ReasonCode.DUE]
    assert codes(job, seen(now=late, workers=[])) == [ReasonCode.DUE, ReasonCode.NO_WORKER]


def test_a_job_that_failed_backs_off_and_names_the_error() -> None:
    job = reach(State.RETRYING).row
    at = changed(job, trigger=Trigger.RETRY, error=RETRYABLE, due_at=NOW + 10**9, retry_count=1)
    [reason] = diagnose(at, seen(now=NOW)).reasons
    assert reason.code == "retrying"
    assert "after io in attempt 1 (retry 1 of 3)" in reason.text
    snoozed = changed(at, trigger=Trigger.SNOOZE)
    assert codes(snoozed, seen()) == [ReasonCode.SNOOZED]
    crashed = changed(at, trigger=Trigger.CRASH)
    assert codes(crashed, seen()) == [ReasonCode.RETRYING]
    assert "its worker died" in str(diagnose(crashed, seen()))


def limited(gate: str = "queue:default", **overrides: Any) -> JobRow:
    """A job that waits at a gate."""
    return changed(
        row(), state=State.CREATED, queued_at=None, gates=(gate,), gate=gate, **overrides
    )


def at(limit: Limit | None, **stats: Any) -> Observations:
    return seen(gate=GateStatus(limit=limit, stats=GateStats(waiting=1, **stats)))


def test_the_diagnosis_of_a_limited_job_names_the_holders() -> None:
    both = at(Limit(concurrency=2), in_use=2, holders=(JOB, OTHER))
    [reason] = diagnose(limited(), both).reasons
    assert reason.code is ReasonCode.LIMITED
    assert reason.text == (
        f"The concurrency limit of 2 for queue default is reached by jobs {JOB}, {OTHER}"
    )
    assert reason.advice == "wait, or raise it: windlass limits set queue:default …"
    one = at(Limit(concurrency=1), in_use=1, holders=(JOB,))
    assert str(diagnose(limited("task:mail.send"), one)).endswith(
        f"for task mail.send is reached by job {JOB}"
    )
    many = at(Limit(concurrency=5), in_use=1005, holders=(JOB, OTHER))
    assert f"jobs {JOB}, {OTHER}, 1,003 more" in str(diagnose(limited(), many))


def test_the_diagnosis_at_a_key_gate_names_the_key_and_its_limit() -> None:
    [gate] = gates_of("default", "mail.send", "ada", {"key:mail.send"})
    [reason] = diagnose(limited(gate), at(Limit(concurrency=1), in_use=1, holders=(OTHER,))).reasons
    assert "limit of 1 for key 'ada' of task mail.send is reached" in reason.text
    assert reason.advice is not None
    assert "windlass limits set key:mail.send" in reason.advice


def test_the_diagnosis_of_a_rate_limit_names_its_end() -> None:
    later = NOW + 60 * SECOND
    [reason] = diagnose(limited(), at(Limit(rate="10/1m"), in_use=3, next_check_at=later)).reasons
    assert (reason.code, reason.at) == (ReasonCode.LIMITED, later)
    assert reason.text == (
        "The rate limit of queue default, 10 starts in 60 s, is reached until 2023-11-14 22:14:20Z"
    )


def test_concurrency_and_rate_may_both_be_reached() -> None:
    limit = Limit(concurrency=1, rate="1/s")
    both = at(limit, in_use=1, holders=(JOB,), next_check_at=NOW + SECOND)
    assert codes(limited(), both) == [ReasonCode.LIMITED, ReasonCode.LIMITED]


def test_a_job_at_a_limit_with_capacity_is_admitted_by_the_next_sweep() -> None:
    for around, text in (
        (
            at(Limit(concurrency=2), in_use=1, next_check_at=0),
            "The limit of queue default has free capacity",
        ),
        (at(None), "The limit of queue default was removed"),
    ):
        assert codes(limited(), around) == [ReasonCode.LIMITED]
        assert text in str(diagnose(limited(), around))
        no_worker = Observations(now=NOW, gate=around.gate)
        assert codes(limited(), no_worker) == [ReasonCode.LIMITED, ReasonCode.NO_WORKER]


def test_a_job_at_a_limit_of_a_paused_queue_has_both_reasons() -> None:
    around = Observations(
        now=NOW,
        paused=True,
        gate=GateStatus(limit=Limit(concurrency=1), stats=GateStats(in_use=1, holders=(OTHER,))),
    )
    assert codes(limited(), around) == [ReasonCode.LIMITED, ReasonCode.PAUSED]
    woken = limited(trigger=Trigger.SUSPEND)  # it no longer waits for a signal
    assert codes(woken, around) == [ReasonCode.LIMITED, ReasonCode.PAUSED]


def test_the_diagnosis_of_a_dependent_job_counts_its_parents() -> None:
    job = changed(row(hold=True), held=False, waiting_for=2)
    assert codes(job, seen()) == [ReasonCode.DEPENDENCIES]
    assert "Waiting for 2 other jobs" in str(diagnose(job, seen()))


def test_the_diagnosis_of_a_running_job_names_worker_and_start() -> None:
    job = reach(State.RUNNING).row
    assert job.lease_until is not None
    [reason] = diagnose(job, seen(now=job.lease_until - 1)).reasons
    assert reason.code is ReasonCode.RUNNING
    assert f"Running on {job.worker} since" in reason.text
    canceling = changed(job, cancel_at=NOW)
    before = seen(now=job.lease_until - 1)
    assert codes(canceling, before) == [ReasonCode.RUNNING, ReasonCode.CANCELING]


def test_a_running_job_with_an_expired_lease_waits_for_a_sweep() -> None:
    job = reach(State.RUNNING).row
    assert codes(job, seen(now=job.lease_until)) == [ReasonCode.LEASE_LOST]
    assert codes(job, seen(now=job.lease_until, workers=[])) == [
        ReasonCode.LEASE_LOST, ReasonCode.NO_WORKER,
    ]  # fmt: skip


def test_the_diagnosis_of_an_expired_job_says_expired() -> None:
    job = row(expires_in=5)
    assert codes(job, seen(now=NOW + 4 * SECOND)) == [ReasonCode.READY]
    assert codes(job, seen(now=NOW + 5 * SECOND)) == [ReasonCode.EXPIRED]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELED])
def test_the_diagnosis_of_a_finished_job_names_outcome_and_actions(state: State) -> None:
    job = reach(state).row
    [reason] = diagnose(job, seen(now=NOW + 10**12, workers=[], paused=True)).reasons
    assert (reason.code, reason.at) == (ReasonCode.FINISHED, job.ended_at)
    assert state in reason.text.lower()
    assert (reason.advice is None) == (state is State.SUCCEEDED)
    again = changed(job, retried_as=OTHER)
    assert diagnose(again, seen()).reasons[0].advice == f"retried as {OTHER}"


def test_the_diagnosis_of_a_failed_job_names_its_error_and_advises_resume() -> None:
    failure = Failure(code="crashed", kind=ErrorKind.TERMINAL)
    job = changed(reach(State.FAILED).row, error=failure, last_step="voice")
    [reason] = diagnose(job, seen()).reasons
    assert "Failed with crashed at" in reason.text
    assert reason.advice == f"windlass jobs resume {JOB}"


def test_a_worker_record_is_read_back_without_unknown_fields() -> None:
    one = worker(last_claim_at=NOW, running=3)
    assert LiveWorker.decode(one.encode()) == one
    newer = one.encode()[:-1] + b',"future_field":1}'
    assert LiveWorker.decode(newer) == one
