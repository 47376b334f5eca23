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
from windlass.core.event import Event, EventType
from windlass.core.job.attempt import Attempt
from windlass.core.job.event_log import expected_fold, fold
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.testing.clock import START
from windlass.testing.factories import read_events

SLACK = 2.0  # seconds beyond the lease


@dataclass(frozen=True, slots=True)
class JobCase:
    """One job with its row, events, attempts and ledger lines."""

    simulation: SimulationRun
    row: JobRow
    task: str
    events: Sequence[Event]
    attempts: Sequence[Attempt]
    lines: Sequence[TaskEvent]
    steps: Mapping[str, Checkpoint]

    def lines_of(self, phase: str) -> list[TaskEvent]:
        return [line for line in self.lines if line.phase == phase]


async def check(simulation: SimulationRun) -> list[str]:
    """Return all violations; an empty list means a correct run."""
    found = [*simulation.problems]
    lines: dict[UUID, list[TaskEvent]] = defaultdict(list)
    for line in simulation.tasks.ledger:
        lines[line.job].append(line)
    ids = [*simulation.acknowledged]
    children = {UUID(line.step) for line in simulation.tasks.ledger if line.phase == "child"}
    rows = await simulation.store.get([*ids, *children])
    for job, row in zip([*ids, *children], rows, strict=True):
        if row is None:
            if job in simulation.acknowledged:
                found.append(f"job {job} was acknowledged and is lost")
            continue
        task = simulation.acknowledged.get(job, "plain")
        events = await read_events(simulation.store, job)
        attempts = await simulation.store.insights.attempts(job) or []
        [steps] = await simulation.store.checkpoints([job])
        case = JobCase(simulation, row, task, events, attempts, lines[job], steps)
        found += [f"job {job} ({task}): {problem}" for check_ in CHECKS for problem in check_(case)]
    found += _history_is_linearizable(simulation)
    found += _children_have_a_succeeded_parent(
        simulation, dict(zip([*ids, *children], rows, strict=True))
    )
    return found


def job_ended_as_expected(case: JobCase) -> Iterator[str]:
    """No task raises more often than its retries allow: a job succeeds unless it is canceled."""
    row = case.row
    if row.state not in {State.SUCCEEDED, State.CANCELED}:
        yield f"it is {row.state}: {row.error}"
    if row.state is State.CANCELED and row.id not in case.simulation.cancels:
        yield "it was canceled without a request"
    if row.final and (row.ended_at is None or row.lease_until is not None):
        yield "it ended without ended_at, or with a lease"


def result_is_of_the_last_attempt(case: JobCase) -> Iterator[str]:
    row = case.row
    if row.state is not State.SUCCEEDED:
        return
    fence = json.loads(row.result or b"null")
    if fence != row.fence:
        yield f"its result is of fence {fence}, its last is {row.fence}"
    if [line.fence for line in case.lines_of("end")].count(row.fence) != 1:
        yield f"it succeeded with fence {row.fence}, which did not end once in the ledger"


def fences_rise(case: JobCase) -> Iterator[str]:
    fences = [attempt.fence for attempt in case.attempts]
    if fences != list(range(1, case.row.fence + 1)) and case.row.state is State.SUCCEEDED:
        yield f"its attempts have the fences {fences}"
    started = Counter(line.fence for line in case.lines_of("start"))
    if twice := [fence for fence, times in started.items() if times > 1]:
        yield f"it started twice with the fences {twice}"


def log_is_dense_and_folds_to_the_row(case: JobCase) -> Iterator[str]:
    numbers = [event.seq for event in case.events]
    if numbers != list(range(1, case.row.seq + 1)):
        yield f"its events are {numbers}, its last is {case.row.seq}"
    elif fold(case.events) != expected_fold(case.row):
        yield f"its events fold to {fold(case.events)}, its row is {expected_fold(case.row)}"


def attempts_do_not_overlap(case: JobCase) -> Iterator[str]:
    for before, after in zip(case.attempts, case.attempts[1:], strict=False):
        if before.ended_at is None or before.ended_at > after.started_at:
            yield f"fence {before.fence} had not ended when {after.fence} started"


def counts_match_the_ledger(case: JobCase) -> Iterator[str]:
    """Errors are those that the task raised; a crash needs a fault."""
    outcomes = Counter(attempt.outcome for attempt in case.attempts)
    raised = len(case.lines_of("raise"))
    reported = outcomes[Trigger.RETRY]
    canceled = case.row.state is State.CANCELED and case.attempts[-1:]
    if case.row.retry_count > min(raised, ERRORS):
        yield f"it counts {case.row.retry_count} errors; its task raised {raised}"
    # An error after an accepted cancel is the effect of that cancel.
    if case.row.retry_count not in {reported, reported - bool(canceled)}:
        yield f"it counts {case.row.retry_count} errors; its attempts ended {dict(outcomes)}"
    if case.row.crash_count and not case.simulation.faults:
        yield f"it counts {case.row.crash_count} crashes in a run without a fault"


def lost_job_was_claimable_in_time(case: JobCase) -> Iterator[str]:
    """If only kills can be the reason, the job of a dead worker waits at most a lease and 2 s."""
    if not {*case.simulation.plan.faults} <= {"kill", "stop"}:
        return
    for attempt in case.attempts:
        killed = case.simulation.killed.get(attempt.worker or "")
        if attempt.outcome is Trigger.CRASH and attempt.ended_at and killed is not None:
            waited = (attempt.ended_at - START) / SECOND - killed
            if waited > case.simulation.plan.lease + SLACK:
                yield f"it was claimable again {waited:.2f} s after its worker was killed"


def cancel_result_is_true(case: JobCase) -> Iterator[str]:
    answer, state = case.simulation.cancels.get(case.row.id), case.row.state
    if answer in {"applied canceled", "applied running"} and state is not State.CANCELED:
        yield f"its cancel returned {answer!r}; the job ended {state}"
    if answer in {"conflict succeeded", "conflict failed"} and f"conflict {state}" != answer:
        yield f"its cancel returned {answer!r}; the job ended {state}"


def steps_are_not_repeated(case: JobCase) -> Iterator[str]:
    """A later attempt repeats a step only if the earlier one did not record it."""
    for name, kept in case.steps.items():
        ran = [line.fence for line in case.lines_of("step") if line.step == name]
        if kept.attempt not in ran or max(ran) > kept.attempt:
            yield f"step {name!r} was recorded by attempt {kept.attempt} and run by {ran}"


def no_record_is_stored_twice(case: JobCase) -> Iterator[str]:
    """Repeated requests add no event. A line names its attempt."""
    message = Counter(event.body for event in case.events if event.type is EventType.LOG)
    if twice := sorted(str(body) for body, times in message.items() if times > 1):
        yield f"its log repeats {', '.join(twice)}"


def _history_is_linearizable(simulation: SimulationRun) -> Iterator[str]:
    """All results, received or not, are linearizable and lead to the current row."""
    for job in simulation.history.calls:
        if (violation := simulation.history.explain_violation(job)) is not None:
            yield f"job {job}: its call history is not linearizable: {violation}"


def _children_have_a_succeeded_parent(
    simulation: SimulationRun, rows: dict[UUID, JobRow | None]
) -> Iterator[str]:
    """Only the successful attempt of a parent created its child."""
    for line in simulation.tasks.ledger:
        if line.phase == "child":
            parent, child = rows[line.job], rows[UUID(line.step)]
            succeeded = parent is not None and parent.state is State.SUCCEEDED
            if (child is not None) != (
                succeeded and parent is not None and parent.fence == line.fence
            ):
                yield f"job {line.job}: the child of fence {line.fence} is {child and child.state}"


CHECKS = (
    job_ended_as_expected,
    result_is_of_the_last_attempt,
    fences_rise,
    log_is_dense_and_folds_to_the_row,
    attempts_do_not_overlap,
    counts_match_the_ledger,
    lost_job_was_claimable_in_time,
    cancel_result_is_true,
    steps_are_not_repeated,
    no_record_is_stored_twice,
)
