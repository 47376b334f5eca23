"""Diagnosis of a job: all reasons why it is not running, the most important first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from windlass.core.admission.gates import GateStats, describe_gate, limit_name
from windlass.core.admission.limit import Limit
from windlass.core.clock import Instant, to_datetime
from windlass.core.decisions import maintenance
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.worker_presence import LiveWorker


class ReasonCode(StrEnum):
    """Kinds of reasons."""

    FINISHED = "finished"  # the job has ended
    RUNNING = "running"  # the job is running
    CANCELING = "canceling"  # the job is running, and its cancel was requested
    LEASE_LOST = "lease_lost"  # its worker does not respond
    EXPIRED = "expired"  # its expiry passed before its first start
    HELD = "held"  # held until it is submitted
    DEPENDENCIES = "dependencies"  # waits for other jobs
    LIMITED = "limited"  # a concurrency or rate limit is reached
    SIGNAL = "signal"  # suspended until a signal arrives
    SCHEDULED = "scheduled"  # scheduled for later
    RETRYING = "retrying"  # failed, waits for its next attempt
    SNOOZED = "snoozed"  # snoozed by its task
    DUE = "due"  # due, but not queued yet
    PAUSED = "paused"  # its queue is paused
    NO_WORKER = "no_worker"  # no running worker consumes its queue
    UNRESPONSIVE = "unresponsive"  # the workers of its queue stopped claiming jobs
    UNKNOWN_TASK = "unknown_task"  # no running worker of its queue has its task
    BUSY = "busy"  # all slots of its queue are busy
    BEHIND = "behind"  # other jobs are ahead in its queue
    READY = "ready"  # it is next


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason. `at` is the instant that the text names; `advice` is what to do, if anything."""

    code: ReasonCode
    text: str
    at: Instant | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatus:
    """The gate that a job waits at, and its limit; None if the limit was removed."""

    limit: Limit | None
    stats: GateStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was read from the store for a diagnosis, at the store's time `now`.

    `ahead` counts the jobs ahead of it in its queue; None if there are too many to count, and then
    `queued` is the length of the queue. `parents` are some of the unfinished parents. `gate` is
    set if the job waits at a gate.
    """

    now: Instant
    workers: Sequence[LiveWorker] = ()
    paused: bool = False
    queued: int = 0
    running: int = 0
    ahead: int | None = 0
    parents: Sequence[JobRow] = ()
    gate: GateStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The reasons, the most important first; `str` joins them to one line."""

    job_id: UUID
    state: State
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "; ".join(reason.text for reason in self.reasons)


def diagnose(row: JobRow, seen: Observations) -> Diagnosis:
    """Return all reasons why a job is not running."""
    return Diagnosis(job_id=row.id, state=row.state, reasons=tuple(_reasons(row, seen)))


def _reasons(row: JobRow, seen: Observations) -> Iterator[Reason]:
    if row.final:
        yield _finished(row)
    elif row.state is State.RUNNING:
        yield from _running(row, seen)
    elif maintenance.expired(row, seen.now):
        yield Reason(
            code=ReasonCode.EXPIRED,
            text=f"Expired at {_time(row.expires_at)} before its first start: "
            "a worker will mark it failed within seconds",
            at=row.expires_at,
        )
        yield from _no_sweeper(seen)
    elif row.state is State.QUEUED:
        yield from _queued(row, seen)
    else:
        yield from _waiting(row, seen)


def _finished(row: JobRow) -> Reason:
    code = f" with {row.error.code}" if row.error is not None else ""
    reason = f" ({row.cancel_reason})" if row.cancel_reason else ""
    again = f"windlass jobs retry {row.id}" if row.state is not State.SUCCEEDED else None
    if row.retried_as is not None:
        again = f"retried as {row.retried_as}"
    elif row.can_resume:
        again = f"windlass jobs resume {row.id}"
    return Reason(
        code=ReasonCode.FINISHED,
        text=f"{row.state.capitalize()}{code}{reason} at {_time(row.ended_at)}"
        if row.state is not State.CANCELED
        else f"Canceled{reason} at {_time(row.ended_at)}",
        at=row.ended_at,
        advice=again,
    )


def _running(row: JobRow, seen: Observations) -> Iterator[Reason]:
    if maintenance.lease_expired(row, seen.now):
        yield Reason(
            code=ReasonCode.LEASE_LOST,
            text=f"Worker {row.worker} does not respond, its lease expired at "
            f"{_time(row.lease_until)}: a worker will requeue the job within seconds",
            at=row.lease_until,
        )
        yield from _no_sweeper(seen)
        return
    yield Reason(
        code=ReasonCode.RUNNING,
        text=f"Running on {row.worker} since {_time(row.started_at)}, attempt {row.attempt}",
        at=row.started_at,
    )
    if row.cancel_requested:
        yield Reason(
            code=ReasonCode.CANCELING,
            text=f"Cancel requested at {_time(row.cancel_at)}: the job ends as canceled when its "
            "task stops",
            at=row.cancel_at,
        )


def _waiting(row: JobRow, seen: Observations) -> Iterator[Reason]:
    """Yield the reasons of a job that is not queued yet: created or retrying."""
    if row.gate is not None:
        yield from _limited(row.gate, seen)
        if seen.paused:
            yield _paused(row)
        return
    if row.held:
        yield Reason(
            code=ReasonCode.HELD,
            text="Held until it is submitted",
            advice=f"windlass jobs submit {row.id}",
        )
    if row.waiting_for:
        yield _dependencies(row, seen)
    elif row.trigger is Trigger.SUSPEND:
        yield Reason(
            code=ReasonCode.SIGNAL,
            text="Suspended until a signal arrives",
            advice=f"windlass jobs signal {row.id} NAME [VALUE]",
        )
    if row.due_at is not None and row.due_at > seen.now:
        yield _not_due(row)
    elif not row.held and not row.waiting_for and row.trigger is not Trigger.SUSPEND:
        yield Reason(
            code=ReasonCode.DUE,
            text="Due: a worker will queue it within seconds",
            at=row.due_at,
        )
        yield from _no_sweeper(seen)
    if seen.paused:
        yield _paused(row)


def _limited(gate: str, seen: Observations) -> Iterator[Reason]:
    """Yield the reasons of a limit: its concurrency and its rate may both be reached."""
    name, status, shown = limit_name(gate), seen.gate, describe_gate(gate)
    limit = None if status is None else status.limit
    if status is None or limit is None:
        yield _admitted_soon(f"The limit of {shown} was removed")
        yield from _no_sweeper(seen)
        return
    stats, reached = status.stats, False
    if limit.concurrency is not None and stats.in_use >= limit.concurrency:
        reached = True
        yield Reason(
            code=ReasonCode.LIMITED,
            text=f"The concurrency limit of {limit.concurrency:,} for {shown} is reached by "
            + _holders(stats),
            advice=f"wait, or raise it: windlass limits set {name} …",
        )
    check_at = stats.next_check_at
    if limit.starts is not None and check_at is not None and check_at > seen.now:
        reached = True
        yield Reason(
            code=ReasonCode.LIMITED,
            text=f"The rate limit of {shown}, {limit.starts:,} starts in {limit.period:g} s, "
            f"is reached until {_time(check_at)}",
            at=check_at,
        )
    if not reached:
        yield _admitted_soon(f"The limit of {shown} has free capacity")
        yield from _no_sweeper(seen)


def _admitted_soon(text: str) -> Reason:
    return Reason(
        code=ReasonCode.LIMITED,
        text=f"{text}: a worker will admit it, or jobs ahead of it, within seconds",
    )


def _holders(stats: GateStats) -> str:
    named = [str(job_id) for job_id in stats.holders]
    if stats.in_use > len(named):
        named.append(f"{stats.in_use - len(named):,} more")
    return f"{'job' if stats.in_use == 1 else 'jobs'} {', '.join(named)}"


def _dependencies(row: JobRow, seen: Observations) -> Reason:
    jobs = "1 other job" if row.waiting_for == 1 else f"{row.waiting_for:,} other jobs"
    named = [f"{parent.id} ({parent.task}, {parent.state})" for parent in seen.parents]
    more = row.waiting_for - len(named)
    if named and more > 0:
        named.append(f"{more:,} more")
    return Reason(
        code=ReasonCode.DEPENDENCIES,
        text=f"Waiting for {jobs} to end" + (f": {', '.join(named)}" if named else ""),
        advice=f"windlass jobs why {seen.parents[0].id}" if seen.parents else None,
    )


def _not_due(row: JobRow) -> Reason:
    until = _time(row.due_at)
    if row.state is State.CREATED:
        return Reason(code=ReasonCode.SCHEDULED, text=f"Scheduled for {until}", at=row.due_at)
    if row.trigger is Trigger.RETRY and row.error is not None:
        text = (
            f"Next attempt at {until} after {row.error.code} in attempt {row.attempt} "
            f"(retry {row.retry_count} of {row.policy.max_retries})"
        )
        return Reason(code=ReasonCode.RETRYING, text=text, at=row.due_at)
    if row.trigger is Trigger.CRASH:
        text = f"Next attempt at {until}, because its worker died"
        return Reason(code=ReasonCode.RETRYING, text=text, at=row.due_at)
    return Reason(code=ReasonCode.SNOOZED, text=f"Next attempt at {until}", at=row.due_at)


def _queued(row: JobRow, seen: Observations) -> Iterator[Reason]:
    configured = [worker for worker in seen.workers if row.queue in worker.queues]
    consumers = [worker for worker in configured if worker.accepts_jobs]
    unresponsive = [worker.name for worker in configured if worker.unresponsive]
    able = [worker for worker in consumers if row.task in worker.tasks]
    slots = sum(worker.queues[row.queue] for worker in consumers)
    blocked = False
    if seen.paused:
        blocked = True
        yield _paused(row)
    if unresponsive and seen.running >= slots:  # else other workers have free slots
        blocked = True
        yield _unresponsive(row, unresponsive)
    if not consumers and not unresponsive:
        blocked = True
        others = f" ({len(seen.workers)} run for other queues)" if seen.workers else ""
        yield Reason(
            code=ReasonCode.NO_WORKER,
            text=f"No running worker consumes queue {row.queue!r}{others}",
            advice=f"start one: windlass worker … -Q {row.queue}",
        )
    elif consumers and not able:
        blocked = True
        yield Reason(
            code=ReasonCode.UNKNOWN_TASK,
            text=f"No running worker of queue {row.queue!r} has the task {row.task!r}",
            advice="start a worker with the app that has it, or correct its name (aliases=)",
        )
    elif consumers and seen.running >= slots:
        blocked = True
        yield Reason(
            code=ReasonCode.BUSY,
            text=f"All {slots} slots of queue {row.queue!r} are busy",
            advice="wait, or start another worker",
        )
    if seen.ahead is None:
        yield Reason(code=ReasonCode.BEHIND, text=f"{seen.queued:,} or more jobs are in its queue")
    elif seen.ahead:
        jobs = "1 job is" if seen.ahead == 1 else f"{seen.ahead:,} jobs are"
        yield Reason(code=ReasonCode.BEHIND, text=f"{jobs} ahead in its queue")
    elif not blocked:
        yield Reason(code=ReasonCode.READY, text="Next in its queue, should start immediately")


def _unresponsive(row: JobRow, names: Sequence[str]) -> Reason:
    has = "has" if len(names) == 1 else "have"
    return Reason(
        code=ReasonCode.UNRESPONSIVE,
        text=f"{', '.join(names)} should consume queue {row.queue!r} and {has} free slots, "
        f"but {has} stopped claiming jobs",
        advice="check the log of that worker, and restart it",
    )


def _paused(row: JobRow) -> Reason:
    return Reason(
        code=ReasonCode.PAUSED,
        text=f"Queue {row.queue!r} is paused",
        advice=f"windlass queues resume {row.queue}",
    )


def _no_sweeper(seen: Observations) -> Iterator[Reason]:
    """Yield a reason if no worker runs at all: any worker sweeps, whatever its queues."""
    if not seen.workers:
        yield Reason(
            code=ReasonCode.NO_WORKER,
            text="No worker is running",
            advice="start one that has the task: windlass worker …",
        )


def _time(instant: Instant | None) -> str:
    if instant is None:
        return "an unknown time"
    return to_datetime(instant).isoformat(" ", "seconds").replace("+00:00", "Z")
