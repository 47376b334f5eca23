"""Why a job is not running: every reason that holds, the weightiest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.core.factories import JOB, NOW, OTHER, RETRYABLE, reach, row

from windlass.core.admission.gates import GateStats, Limit, gates_of
from windlass.core.clock import SECOND
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.query.diagnosis import Because, Held, Seen, why
from windlass.core.worker_presence import LiveWorker


def worker(name: str = "w", **over: Any) -> LiveWorker:
    facts: dict[str, Any] = {
        "name": name, "host": "h", "pid": 1, "version": "1", "queues": {"default": 2},
        "tasks": ("mail.send",), "started_at": NOW, "seen_at": NOW,
    }  # fmt: skip
    return LiveWorker(**facts | over)


def seen(**over: Any) -> Seen:
    facts: dict[str, Any] = {"now": NOW, "workers": [worker()]}
    return Seen(**facts | over)


def changed(job: JobRow, **over: Any) -> JobRow:
    return JobRow(**{name: getattr(job, name) for name in _fields(job)} | over)


def _fields(job: JobRow) -> Sequence[str]:
    return [name for kind in type(job).__mro__ for name in getattr(kind, "__slots__", ())]


def because(job: JobRow, around: Seen) -> list[Because]:
    return [reason.because for reason in why(job, around).reasons]


def test_a_queued_job_with_nothing_in_its_way_is_next() -> None:
    answer = why(row(), seen())
    assert (answer.job_id, answer.state) == (JOB, State.QUEUED)
    assert [reason.because for reason in answer.reasons] == [Because.READY]
    assert str(answer) == "it is next, and should start at once"


def test_a_job_behind_others_says_how_many() -> None:
    assert because(row(), seen(ahead=3)) == [Because.BEHIND]
    assert "3 jobs are before it" in str(why(row(), seen(ahead=3)))
    assert "1 job is before it" in str(why(row(), seen(ahead=1)))
    assert "10,000 or more jobs wait" in str(why(row(), seen(ahead=None, queued=10_000)))


def test_without_a_worker_of_its_queue_there_is_nobody_to_take_it() -> None:
    nobody = why(row(), seen(workers=[]))
    assert [reason.because for reason in nobody.reasons] == [Because.NO_WORKER]
    assert "no worker takes queue 'default': none is live" in str(nobody)
    assert nobody.reasons[0].advice == "start one: windlass worker … -Q default"
    others = why(row(), seen(workers=[worker(queues={"media": 1})]))
    assert "none of the 1 live ones does" in str(others)


def test_a_deaf_worker_does_not_count_as_taking_the_queue() -> None:
    deaf = worker("deaf-1", free=2, room_since=NOW - 100 * SECOND, started_at=NOW - 100 * SECOND)
    answer = why(row(), seen(workers=[deaf]))
    assert [reason.because for reason in answer.reasons] == [Because.DEAF]
    assert "deaf-1 should take queue 'default' and has room" in str(answer)
    assert because(row(), seen(workers=[deaf, worker()])) == [Because.READY]
    full = seen(workers=[deaf, worker()], running=2)
    assert because(row(), full) == [Because.DEAF, Because.BUSY]


def test_a_worker_that_stops_takes_no_more() -> None:
    assert because(row(), seen(workers=[worker(stopping=True)])) == [Because.NO_WORKER]


def test_workers_that_do_not_know_the_task_do_not_run_it() -> None:
    answer = why(row(), seen(workers=[worker(tasks=("a", "b")), worker(queues={"media": 1})]))
    assert [reason.because for reason in answer.reasons] == [Because.UNKNOWN_TASK]
    assert "knows the task 'mail.send'" in str(answer)
    one_does = [worker(tasks=("a",)), worker("x")]
    assert because(row(), seen(workers=one_does)) == [Because.READY]


def test_taken_slots_are_a_reason_of_their_own() -> None:
    assert because(row(), seen(running=1)) == [Because.READY]
    assert because(row(), seen(running=2)) == [Because.BUSY]
    assert because(row(), seen(running=2, ahead=1)) == [Because.BUSY, Because.BEHIND]
    two = [worker(), worker("x")]
    assert because(row(), seen(running=2, workers=two)) == [Because.READY]


def test_a_paused_queue_comes_first_and_hides_nothing() -> None:
    answer = why(row(), seen(paused=True, workers=[], ahead=2))
    assert [reason.because for reason in answer.reasons] == [
        Because.PAUSED, Because.NO_WORKER, Because.BEHIND,
    ]  # fmt: skip
    assert answer.reasons[0].advice == "windlass queues resume default"


def test_a_held_job_says_how_to_submit_it() -> None:
    answer = why(row(hold=True), seen())
    assert [reason.because for reason in answer.reasons] == [Because.HELD]
    assert answer.reasons[0].advice == f"windlass jobs submit {JOB}"
    both = row(hold=True, delay=60)
    assert because(both, seen()) == [Because.HELD, Because.SCHEDULED]


def test_a_job_of_the_future_waits_for_its_time() -> None:
    job = row(delay=60)
    answer = why(job, seen())
    [reason] = answer.reasons
    assert (reason.because, reason.at) == (Because.SCHEDULED, NOW + 60 * SECOND)
    assert "2023-11-14 22:14:20Z" in reason.text
    assert because(job, seen(paused=True)) == [Because.SCHEDULED, Because.PAUSED]
    late = NOW + 61 * SECOND
    assert because(job, seen(now=late)) == [Because.DUE]
    assert because(job, seen(now=late, workers=[])) == [Because.DUE, Because.NO_WORKER]


def test_a_job_that_failed_backs_off_and_names_the_error() -> None:
    job = reach(State.RETRYING).row
    at = changed(job, trigger=Trigger.RETRY, error=RETRYABLE, due_at=NOW + 10**9, retry_count=1)
    [reason] = why(at, seen(now=NOW)).reasons
    assert reason.because is Because.BACKING_OFF
    assert "after io in attempt 1 (retry 1 of 3)" in reason.text
    snoozed = changed(at, trigger=Trigger.SNOOZE)
    assert because(snoozed, seen()) == [Because.SNOOZED]
    crashed = changed(at, trigger=Trigger.CRASH)
    assert because(crashed, seen()) == [Because.BACKING_OFF]
    assert "its worker died" in str(why(crashed, seen()))


def limited(gate: str = "queue:default", **over: Any) -> JobRow:
    """A job that waits at a gate."""
    return changed(row(), state=State.CREATED, queued_at=None, gates=(gate,), gate=gate, **over)


def at(limit: Limit | None, **stats: Any) -> Seen:
    return seen(held=Held(limit=limit, stats=GateStats(waiting=1, **stats)))


def test_a_job_at_a_limit_names_those_who_hold_it() -> None:
    both = at(Limit(concurrency=2), holding=2, holders=(JOB, OTHER))
    [reason] = why(limited(), both).reasons
    assert reason.because is Because.LIMITED
    assert reason.text == (
        f"the limit of 2 at once for queue default is reached by jobs {JOB}, {OTHER}"
    )
    assert reason.advice == "wait, or raise it: windlass limits set queue:default …"
    one = at(Limit(concurrency=1), holding=1, holders=(JOB,))
    assert str(why(limited("task:mail.send"), one)).endswith(
        f"for task mail.send is reached by job {JOB}"
    )
    many = at(Limit(concurrency=5), holding=1005, holders=(JOB, OTHER))
    assert f"jobs {JOB}, {OTHER}, 1,003 more" in str(why(limited(), many))


def test_a_job_of_a_key_names_the_key_and_the_limit_of_all_keys() -> None:
    [gate] = gates_of("default", "mail.send", "ada", {"key:mail.send"})
    [reason] = why(limited(gate), at(Limit(concurrency=1), holding=1, holders=(OTHER,))).reasons
    assert "1 at once for key 'ada' of task mail.send is reached" in reason.text
    assert reason.advice is not None
    assert "windlass limits set key:mail.send" in reason.advice


def test_a_job_at_a_rate_says_until_when_it_is_used_up() -> None:
    later = NOW + 60 * SECOND
    [reason] = why(limited(), at(Limit(rate="10/1m"), holding=3, look_at=later)).reasons
    assert (reason.because, reason.at) == (Because.LIMITED, later)
    assert reason.text == (
        "the rate of queue default, 10 starts in 60 s, is used up until 2023-11-14 22:14:20Z"
    )


def test_both_halves_of_a_limit_may_be_reached() -> None:
    limit = Limit(concurrency=1, rate="1/s")
    both = at(limit, holding=1, holders=(JOB,), look_at=NOW + SECOND)
    assert because(limited(), both) == [Because.LIMITED, Because.LIMITED]


def test_a_job_at_a_limit_with_room_is_let_in_by_a_sweep_if_there_is_a_worker() -> None:
    for around, said in (
        (at(Limit(concurrency=2), holding=1, look_at=0), "there is room at the limit of queue"),
        (at(None), "the limit of queue default was removed"),
    ):
        assert because(limited(), around) == [Because.LIMITED]
        assert said in str(why(limited(), around))
        nobody = Seen(now=NOW, held=around.held)
        assert because(limited(), nobody) == [Because.LIMITED, Because.NO_WORKER]


def test_a_job_at_a_limit_of_a_paused_queue_has_both_reasons() -> None:
    around = Seen(
        now=NOW,
        paused=True,
        held=Held(limit=Limit(concurrency=1), stats=GateStats(holding=1, holders=(OTHER,))),
    )
    assert because(limited(), around) == [Because.LIMITED, Because.PAUSED]
    woken = limited(trigger=Trigger.SUSPEND)  # it waits for no signal any more
    assert because(woken, around) == [Because.LIMITED, Because.PAUSED]


def test_a_job_that_waits_for_others_says_for_how_many() -> None:
    job = changed(row(hold=True), held=False, waiting_for=2)
    assert because(job, seen()) == [Because.DEPENDENCIES]
    assert "waits for 2 other jobs" in str(why(job, seen()))


def test_a_running_job_says_where_and_since_when() -> None:
    job = reach(State.RUNNING).row
    assert job.lease_until is not None
    [reason] = why(job, seen(now=job.lease_until - 1)).reasons
    assert reason.because is Because.RUNNING
    assert f"it runs on {job.worker} since" in reason.text
    asked = changed(job, cancel_at=NOW)
    before = seen(now=job.lease_until - 1)
    assert because(asked, before) == [Because.RUNNING, Because.CANCELING]


def test_a_running_job_whose_lease_ran_out_waits_for_a_sweep() -> None:
    job = reach(State.RUNNING).row
    assert because(job, seen(now=job.lease_until)) == [Because.LEASE_LOST]
    assert because(job, seen(now=job.lease_until, workers=[])) == [
        Because.LEASE_LOST, Because.NO_WORKER,
    ]  # fmt: skip


def test_a_job_past_its_expiry_will_not_start_any_more() -> None:
    job = row(expires_in=5)
    assert because(job, seen(now=NOW + 4 * SECOND)) == [Because.READY]
    assert because(job, seen(now=NOW + 5 * SECOND)) == [Because.EXPIRED]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELED])
def test_a_finished_job_says_how_and_what_can_be_done(state: State) -> None:
    job = reach(state).row
    [reason] = why(job, seen(now=NOW + 10**12, workers=[], paused=True)).reasons
    assert (reason.because, reason.at) == (Because.FINISHED, job.ended_at)
    assert state in reason.text
    assert (reason.advice is None) == (state is State.SUCCEEDED)
    again = changed(job, retried_as=OTHER)
    assert why(again, seen()).reasons[0].advice == f"it was retried as {OTHER}"


def test_a_failed_job_names_its_error_and_a_stepped_one_is_resumed() -> None:
    failure = Failure(code="crashed", kind=ErrorKind.TERMINAL)
    job = changed(reach(State.FAILED).row, error=failure, last_step="voice")
    [reason] = why(job, seen()).reasons
    assert "it has failed with crashed at" in reason.text
    assert reason.advice == f"windlass jobs resume {JOB}"


def test_a_worker_reads_back_what_it_wrote_and_forgives_what_is_newer() -> None:
    one = worker(last_claim_at=NOW, running=3)
    assert LiveWorker.decode(one.encode()) == one
    newer = one.encode()[:-1] + b',"mood":"fine"}'
    assert LiveWorker.decode(newer) == one
