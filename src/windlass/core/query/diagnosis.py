"""Why a job is not running, or not any more: every reason that holds, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from windlass.core.admission.gates import GateStats, Limit, limit_name, shown
from windlass.core.clock import Instant, to_datetime
from windlass.core.decisions import maintenance
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.worker_presence import LiveWorker


class Because(StrEnum):
    """The sorts of reasons."""

    FINISHED = "finished"  # it has ended
    RUNNING = "running"  # it does run
    CANCELING = "canceling"  # it runs, and was asked to stop
    LEASE_LOST = "lease_lost"  # its worker no longer answers
    EXPIRED = "expired"  # it waited past its expiry
    HELD = "held"  # until somebody submits it
    DEPENDENCIES = "dependencies"  # it waits for other jobs
    LIMITED = "limited"  # a limit keeps it out of the line
    SIGNAL = "signal"  # it is suspended until a signal comes
    SCHEDULED = "scheduled"  # its time has not come
    BACKING_OFF = "backing_off"  # it failed, and waits for its next attempt
    SNOOZED = "snoozed"  # it asked to come back later
    DUE = "due"  # its time came, and nobody has queued it yet
    PAUSED = "paused"  # its queue hands out no jobs
    NO_WORKER = "no_worker"  # no live worker takes its queue
    DEAF = "deaf"  # the workers of its queue live, and have stopped asking for work
    UNKNOWN_TASK = "unknown_task"  # no live worker of its queue knows its task
    BUSY = "busy"  # every slot of its queue is taken
    BEHIND = "behind"  # others are before it in line
    READY = "ready"  # it is next


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """`at` is the instant that the text speaks of; `advice` says what to do, if anything."""

    because: Because
    text: str
    at: Instant | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The gate that a job waits at, and the limit that it is there for; None if that is gone."""

    limit: Limit | None
    stats: GateStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read of the surroundings of a job, at the store's time `now`.

    `ahead` counts the jobs before it in its queue; None when there are too many to count, and then
    `queued` says how many wait there in all. `parents` are some of those that it waits for. What
    it is `held` by is there if it waits at a gate.
    """

    now: Instant
    workers: Sequence[LiveWorker] = ()
    paused: bool = False
    queued: int = 0
    running: int = 0
    ahead: int | None = 0
    parents: Sequence[JobRow] = ()
    held: Held | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Its reasons come the weightiest first; as text, it is all of them in one line."""

    job_id: UUID
    state: State
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "; ".join(reason.text for reason in self.reasons)


def why(row: JobRow, seen: Seen) -> Why:
    return Why(job_id=row.id, state=row.state, reasons=tuple(_reasons(row, seen)))


def _reasons(row: JobRow, seen: Seen) -> Iterator[Reason]:
    if row.final:
        yield _finished(row)
    elif row.state is State.RUNNING:
        yield from _running(row, seen)
    elif maintenance.too_late(row, seen.now):
        yield Reason(
            because=Because.EXPIRED,
            text=f"it expired at {_time(row.expires_at)} before it could start: "
            "the next sweep of a worker fails it",
            at=row.expires_at,
        )
        yield from _sweepers(seen)
    elif row.state is State.QUEUED:
        yield from _queued(row, seen)
    else:
        yield from _waiting(row, seen)


def _finished(row: JobRow) -> Reason:
    code = f" with {row.error.code}" if row.error is not None else ""
    reason = f" ({row.cancel_reason})" if row.cancel_reason else ""
    again = f"windlass jobs retry {row.id}" if row.state is not State.SUCCEEDED else None
    if row.retried_as is not None:
        again = f"it was retried as {row.retried_as}"
    elif row.can_resume:
        again = f"windlass jobs resume {row.id}"
    return Reason(
        because=Because.FINISHED,
        text=f"it has {row.state}{code}{reason} at {_time(row.ended_at)}"
        if row.state is not State.CANCELED
        else f"it was canceled{reason} at {_time(row.ended_at)}",
        at=row.ended_at,
        advice=again,
    )


def _running(row: JobRow, seen: Seen) -> Iterator[Reason]:
    if maintenance.lease_lost(row, seen.now):
        yield Reason(
            because=Because.LEASE_LOST,
            text=f"its worker {row.worker} no longer answers, its lease ran out at "
            f"{_time(row.lease_until)}: the next sweep of a worker takes it over",
            at=row.lease_until,
        )
        yield from _sweepers(seen)
        return
    yield Reason(
        because=Because.RUNNING,
        text=f"it runs on {row.worker} since {_time(row.started_at)}, attempt {row.attempt}",
        at=row.started_at,
    )
    if row.cancel_requested:
        yield Reason(
            because=Because.CANCELING,
            text=f"its cancel was asked for at {_time(row.cancel_at)}: it ends as canceled when "
            "its task has stopped",
            at=row.cancel_at,
        )


def _waiting(row: JobRow, seen: Seen) -> Iterator[Reason]:
    """Not in line yet: created or retrying."""
    if row.gate is not None:
        yield from _limited(row.gate, seen)
        if seen.paused:
            yield _paused(row)
        return
    if row.held:
        yield Reason(
            because=Because.HELD,
            text="it is held until somebody submits it",
            advice=f"windlass jobs submit {row.id}",
        )
    if row.waiting_for:
        yield _dependencies(row, seen)
    elif row.trigger is Trigger.SUSPEND:
        yield Reason(
            because=Because.SIGNAL,
            text="it is suspended, and waits for a signal",
            advice=f"windlass jobs signal {row.id} NAME [VALUE]",
        )
    if row.due_at is not None and row.due_at > seen.now:
        yield _later(row)
    elif not row.held and not row.waiting_for and row.trigger is not Trigger.SUSPEND:
        yield Reason(
            because=Because.DUE,
            text="its time has come: the next sweep of a worker queues it",
            at=row.due_at,
        )
        yield from _sweepers(seen)
    if seen.paused:
        yield _paused(row)


def _limited(gate: str, seen: Seen) -> Iterator[Reason]:
    """Both halves of a limit may be reached at the same time."""
    name, held = limit_name(gate), seen.held
    limit = None if held is None else held.limit
    if held is None or limit is None:
        yield _let_in(f"the limit of {shown(gate)} was removed")
        yield from _sweepers(seen)
        return
    stats, told = held.stats, False
    if limit.concurrency is not None and stats.holding >= limit.concurrency:
        told = True
        yield Reason(
            because=Because.LIMITED,
            text=f"the limit of {limit.concurrency:,} at once for {shown(gate)} is reached by "
            + _holders(stats),
            advice=f"wait, or raise it: windlass limits set {name} …",
        )
    if limit.starts is not None and stats.look_at is not None and stats.look_at > seen.now:
        told = True
        yield Reason(
            because=Because.LIMITED,
            text=f"the rate of {shown(gate)}, {limit.starts:,} starts in {limit.period:g} s, "
            f"is used up until {_time(stats.look_at)}",
            at=stats.look_at,
        )
    if not told:
        yield _let_in(f"there is room at the limit of {shown(gate)}")
        yield from _sweepers(seen)


def _let_in(why: str) -> Reason:
    return Reason(
        because=Because.LIMITED, text=f"{why}: the next sweep of a worker lets it in, or others"
    )


def _holders(stats: GateStats) -> str:
    named = [str(job_id) for job_id in stats.holders]
    if stats.holding > len(named):
        named.append(f"{stats.holding - len(named):,} more")
    return f"{'job' if stats.holding == 1 else 'jobs'} {', '.join(named)}"


def _dependencies(row: JobRow, seen: Seen) -> Reason:
    jobs = "1 other job" if row.waiting_for == 1 else f"{row.waiting_for:,} other jobs"
    named = [f"{parent.id} ({parent.task}, {parent.state})" for parent in seen.parents]
    more = row.waiting_for - len(named)
    if named and more > 0:
        named.append(f"{more:,} more")
    return Reason(
        because=Because.DEPENDENCIES,
        text=f"it waits for {jobs} to end" + (f": {', '.join(named)}" if named else ""),
        advice=f"windlass jobs why {seen.parents[0].id}" if seen.parents else None,
    )


def _later(row: JobRow) -> Reason:
    until = _time(row.due_at)
    if row.state is State.CREATED:
        return Reason(
            because=Because.SCHEDULED, text=f"it waits for its time, {until}", at=row.due_at
        )
    if row.trigger is Trigger.RETRY and row.error is not None:
        text = (
            f"it backs off until {until} after {row.error.code} in attempt {row.attempt} "
            f"(retry {row.retry_count} of {row.policy.max_retries})"
        )
        return Reason(because=Because.BACKING_OFF, text=text, at=row.due_at)
    if row.trigger is Trigger.CRASH:
        text = f"it backs off until {until}, because its worker died"
        return Reason(because=Because.BACKING_OFF, text=text, at=row.due_at)
    return Reason(because=Because.SNOOZED, text=f"it comes back at {until}", at=row.due_at)


def _queued(row: JobRow, seen: Seen) -> Iterator[Reason]:
    named = [worker for worker in seen.workers if row.queue in worker.queues]
    takers = [worker for worker in named if worker.takes_jobs]
    deaf = [worker.name for worker in named if worker.deaf]
    able = [worker for worker in takers if row.task in worker.tasks]
    slots = sum(worker.queues[row.queue] for worker in takers)
    any_told = False
    if seen.paused:
        any_told = True
        yield _paused(row)
    if deaf and seen.running >= slots:  # else others have room for it
        any_told = True
        yield _deaf(row, deaf)
    if not takers and not deaf:
        any_told = True
        live = f"none of the {len(seen.workers)} live ones does" if seen.workers else "none is live"
        yield Reason(
            because=Because.NO_WORKER,
            text=f"no worker takes queue {row.queue!r}: {live}",
            advice=f"start one: windlass worker … -Q {row.queue}",
        )
    elif takers and not able:
        any_told = True
        yield Reason(
            because=Because.UNKNOWN_TASK,
            text=f"no live worker of queue {row.queue!r} knows the task {row.task!r}",
            advice="start a worker with the app that has it, or correct its name (aliases=)",
        )
    elif takers and seen.running >= slots:
        any_told = True
        yield Reason(
            because=Because.BUSY,
            text=f"all {slots} slots of queue {row.queue!r} are taken",
            advice="wait, or start another worker",
        )
    if seen.ahead is None:
        yield Reason(because=Because.BEHIND, text=f"{seen.queued:,} or more jobs wait in its queue")
    elif seen.ahead:
        jobs = "1 job is" if seen.ahead == 1 else f"{seen.ahead:,} jobs are"
        yield Reason(because=Because.BEHIND, text=f"{jobs} before it in its queue")
    elif not any_told:
        yield Reason(because=Because.READY, text="it is next, and should start at once")


def _deaf(row: JobRow, names: Sequence[str]) -> Reason:
    has = "has" if len(names) == 1 else "have"
    return Reason(
        because=Because.DEAF,
        text=f"{', '.join(names)} should take queue {row.queue!r} and {has} room, but {has} "
        "stopped asking for work",
        advice="look into the log of that worker, and restart it",
    )


def _paused(row: JobRow) -> Reason:
    return Reason(
        because=Because.PAUSED,
        text=f"queue {row.queue!r} is paused",
        advice=f"windlass queues resume {row.queue}",
    )


def _sweepers(seen: Seen) -> Iterator[Reason]:
    """Any worker sweeps, whatever its queues; without one, time stands still."""
    if not seen.workers:
        yield Reason(
            because=Because.NO_WORKER,
            text="no worker is live",
            advice="start one that has it: windlass worker …",
        )


def _time(instant: Instant | None) -> str:
    if instant is None:
        return "an unknown time"
    return to_datetime(instant).isoformat(" ", "seconds").replace("+00:00", "Z")
