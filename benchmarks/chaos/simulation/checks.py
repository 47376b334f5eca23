"""Checks of a simulation run. Each check yields one message per violation."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from benchmarks.chaos.simulation.run import SimulationRun
from benchmarks.chaos.simulation.tasks import ERRORS, TaskEvent
from windlass.core.clock import SECOND
from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import Event, EventType, fold, snapshot
from windlass.core.job.attempt import Attempt
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.testing.clock import START
from windlass.testing.factories import read_events

TIMEOUT = 2.0  # seconds beyond the lease


@dataclass(frozen=True, slots=True)
class JobCase:
    """One job: its row and its whole history."""

    run_: SimulationRun
    row: JobRow
    task: str
    events: Sequence[Event]
    attempts: Sequence[Attempt]
    lines: Sequence[TaskEvent]
    steps: Mapping[str, Checkpoint]

    def message(self, phase: str) -> list[TaskEvent]:
        return [line for line in self.lines if line.phase == phase]


async def check(run_: SimulationRun) -> list[str]:
    """Return all violations; an empty list means a correct run."""
    found = [*run_.problems]
    lines: dict[UUID, list[TaskEvent]] = defaultdict(list)
    for line in run_.tasks.ledger:
        lines[line.job].append(line)
    ids = [*run_.acknowledged]
    children = {UUID(line.step) for line in run_.tasks.ledger if line.phase == "child"}
    rows = await run_.store.get([*ids, *children])
    for job, row in zip([*ids, *children], rows, strict=True):
        if row is None:
            if job in run_.acknowledged:
                found.append(f"job {job} was acknowledged and is lost")
            continue
        task = run_.acknowledged.get(job, "plain")
        events = await read_events(run_.store, job)
        attempts = await run_.store.attempts(job) or []
        [steps] = await run_.store.checkpoints([job])
        case = JobCase(run_, row, task, events, attempts, lines[job], steps)
        found += [f"job {job} ({task}): {wrong}" for one in CHECKS for wrong in one(case)]
    found += _history_is_linearizable(run_)
    found += _children_have_a_succeeded_parent(
        run_, dict(zip([*ids, *children], rows, strict=True))
    )
    return found


def it_ended_as_it_must(case: JobCase) -> Iterator[str]:
    """No task raises more often than its retries allow: a job succeeds unless it is canceled."""
    row = case.row
    if row.state not in {State.SUCCEEDED, State.CANCELED}:
        yield f"it is {row.state}: {row.error}"
    if row.state is State.CANCELED and row.id not in case.run_.cancels:
        yield "it was canceled without a request"
    if row.final and (row.ended_at is None or row.lease_until is not None):
        yield "it ended without an instant, or with a lease"


def the_result_is_of_the_last_attempt(case: JobCase) -> Iterator[str]:
    row = case.row
    if row.state is not State.SUCCEEDED:
        return
    fence = json.loads(row.result or b"null")
    if fence != row.fence:
        yield f"its result is of fence {fence}, its last is {row.fence}"
    if [line.fence for line in case.message("end")].count(row.fence) != 1:
        yield f"it succeeded with fence {row.fence}, which did not end once in the ledger"


def fences_rise(case: JobCase) -> Iterator[str]:
    fences = [attempt.fence for attempt in case.attempts]
    if fences != list(range(1, case.row.fence + 1)) and case.row.state is State.SUCCEEDED:
        yield f"its attempts have the fences {fences}"
    started = Counter(line.fence for line in case.message("start"))
    if twice := [fence for fence, times in started.items() if times > 1]:
        yield f"it began twice with the fences {twice}"


def the_log_is_dense_and_adds_up(case: JobCase) -> Iterator[str]:
    numbers = [event.seq for event in case.events]
    if numbers != list(range(1, case.row.seq + 1)):
        yield f"its events are {numbers}, its last is {case.row.seq}"
    elif fold(case.events) != snapshot(case.row):
        yield f"its events fold to {fold(case.events)}, its row is {snapshot(case.row)}"


def attempts_do_not_overlap(case: JobCase) -> Iterator[str]:
    for before, after in zip(case.attempts, case.attempts[1:], strict=False):
        if before.ended_at is None or before.ended_at > after.started_at:
            yield f"fence {before.fence} was not over when {after.fence} began"


def nothing_is_counted_that_did_not_happen(case: JobCase) -> Iterator[str]:
    """Errors are those its task raised; a crash needs a process that was hurt."""
    outcomes = Counter(attempt.outcome for attempt in case.attempts)
    raised = len(case.message("raise"))
    reported = outcomes[Trigger.RETRY]
    canceled = case.row.state is State.CANCELED and case.attempts[-1:]
    if case.row.retry_count > min(raised, ERRORS):
        yield f"it counts {case.row.retry_count} errors; its task raised {raised}"
    # An error after an accepted cancel is the effect of that cancel.
    if case.row.retry_count not in {reported, reported - bool(canceled)}:
        yield f"it counts {case.row.retry_count} errors; its attempts ended {dict(outcomes)}"
    if case.row.crash_count and not case.run_.faults:
        yield f"it counts {case.row.crash_count} crashes in a run without a fault"


def a_lost_job_was_claimable_in_time(case: JobCase) -> Iterator[str]:
    """Where no fault but a kill can be the reason, a dead worker's job waits a lease and 2 s."""
    if not {*case.run_.plan.faults} <= {"kill", "stop"}:
        return
    for attempt in case.attempts:
        killed = case.run_.killed.get(attempt.worker or "")
        if attempt.outcome is Trigger.CRASH and attempt.ended_at and killed is not None:
            waited = (attempt.ended_at - START) / SECOND - killed
            if waited > case.run_.plan.lease + TIMEOUT:
                yield f"it was claimable again {waited:.2f} s after its worker was killed"


def cancels_were_answered_truly(case: JobCase) -> Iterator[str]:
    answer, state = case.run_.cancels.get(case.row.id), case.row.state
    if answer in {"applied canceled", "applied running"} and state is not State.CANCELED:
        yield f"its cancel was answered {answer!r}; it ended {state}"
    if answer in {"conflict succeeded", "conflict failed"} and f"conflict {state}" != answer:
        yield f"its cancel was answered {answer!r}; it ended {state}"


def steps_are_not_repeated(case: JobCase) -> Iterator[str]:
    """A step that a later attempt did again was not recorded by the earlier one."""
    for name, kept in case.steps.items():
        did = [line.fence for line in case.message("step") if line.step == name]
        if kept.attempt not in did or max(did) > kept.attempt:
            yield f"step {name!r} was recorded by attempt {kept.attempt} and done by {did}"


def no_record_is_stored_twice(case: JobCase) -> Iterator[str]:
    """However often it was sent. A line names its attempt."""
    message = Counter(event.body for event in case.events if event.type is EventType.LOG)
    if twice := sorted(str(body) for body, times in message.items() if times > 1):
        yield f"its log repeats {', '.join(twice)}"


def _history_is_linearizable(run_: SimulationRun) -> Iterator[str]:
    """All results, received or not, are linearizable and lead to the current row."""
    for job in run_.history.calls:
        if (violation := run_.history.explain_violation(job)) is not None:
            yield f"job {job}: its call history is not linearizable: {violation}"


def _children_have_a_succeeded_parent(
    run_: SimulationRun, rows: dict[UUID, JobRow | None]
) -> Iterator[str]:
    """Of each parent's attempts, the one that succeeded has its child there, the others none."""
    for line in run_.tasks.ledger:
        if line.phase == "child":
            parent, child = rows[line.job], rows[UUID(line.step)]
            won = parent is not None and parent.state is State.SUCCEEDED
            if (child is not None) != (won and parent is not None and parent.fence == line.fence):
                yield f"job {line.job}: the child of fence {line.fence} is {child and child.state}"


CHECKS = (
    it_ended_as_it_must,
    the_result_is_of_the_last_attempt,
    fences_rise,
    the_log_is_dense_and_adds_up,
    attempts_do_not_overlap,
    nothing_is_counted_that_did_not_happen,
    a_lost_job_was_claimable_in_time,
    cancels_were_answered_truly,
    steps_are_not_repeated,
    no_record_is_stored_twice,
)
