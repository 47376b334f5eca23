"""Decisions about new jobs: created, or a duplicate of another job, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.transition import CancelRequest
from windlass.core.errors import ConflictError, NotFoundError, RequestError
from windlass.core.fast_dataclass import positional_value
from windlass.core.job.dependency import OnParent, Parent
from windlass.core.job.new_job import NewJob, check_new_job
from windlass.core.job.row import JobRow, new_row
from windlass.core.job.state import WAITING, State

_REQUEST, _UNIQUE = "request id", "unique key"


class EnqueueStatus(StrEnum):
    CREATED = "created"  # this job is stored, now or by an earlier call with the same id
    DUPLICATE = "duplicate"  # another job already represents the request: `row`
    CONFLICT = "conflict"  # its id or request id is used by a different request
    REFUSED = "refused"  # the request is invalid; `error` is the reason


@positional_value
class EnqueueResult:
    """Result of one enqueue. The row of a new job is built only on access.

    `position` is its queue position, if that differs from its serial.
    """

    status: EnqueueStatus
    new: NewJob
    at: Instant = 0
    serial: int = 0
    existing: JobRow | None = None
    root_id: UUID | None = None
    error: RequestError | None = None
    gates: tuple[str, ...] = ()
    position: int | None = None

    @property
    def accepted(self) -> bool:
        return self.status in {EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE}

    @property
    def row(self) -> JobRow | None:
        if self.existing is not None or self.status is not EnqueueStatus.CREATED:
            return self.existing
        row = new_row(self.new, self.at, self.serial, self.root_id, gates=self.gates)
        waits = row.position is None or self.position is None
        return row if waits else replace(row, position=self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicts:
    """The stored jobs that a new job may conflict with, read by the store."""

    same_id: JobRow | None = None
    same_request: JobRow | None = None
    same_key: JobRow | None = None  # active, of the same owner and task
    origin: JobRow | None = None  # the job that this one retries
    active_retry: JobRow | None = None  # the active job of the origin's lineage, if any
    parents: Mapping[UUID, Parent] = field(default_factory=dict)  # the jobs that it depends on


@dataclass(frozen=True, slots=True)
class EnqueueDecision:
    """Decision about one new job.

    `displace` is a waiting job that this one replaces (debounce), canceled in the same write.
    `waits_for` are the unfinished parents. `failed_parent` is a parent that ended without success:
    the job is stored and ends immediately.
    """

    status: EnqueueStatus
    existing: JobRow | None = None
    displace: JobRow | None = None
    error: RequestError | None = None
    waits_for: tuple[UUID, ...] = ()
    failed_parent: Parent | None = None

    @property
    def waiting_for(self) -> int:
        return len(self.waits_for) + (self.failed_parent is not None)


def decide_enqueue(new: NewJob, conflicts: Conflicts) -> EnqueueDecision:
    """Decide whether a new job is created."""
    if conflicts.same_id is not None:
        return _same_id(new, conflicts.same_id)
    if conflicts.same_request is not None:
        return _same_request(new, conflicts.same_request)
    if new.retry_of is not None:
        refusal = _retry(new, conflicts)
        if refusal is not None:
            return refusal
    same_key = conflicts.same_key
    if same_key is not None and not (new.debounce and same_key.state in WAITING):
        return EnqueueDecision(EnqueueStatus.DUPLICATE, same_key)
    if new.depends_on:
        return replace(_depends(new, conflicts.parents), displace=same_key)
    return EnqueueDecision(EnqueueStatus.CREATED, displace=same_key)


def _depends(new: NewJob, parents: Mapping[UUID, Parent]) -> EnqueueDecision:
    """Check the parents. They must be stored before their children, so there are no cycles."""
    waits_for: list[UUID] = []
    failed_parent: Parent | None = None
    for parent_id in new.depends_on:
        parent = parents.get(parent_id)
        if parent is None or parent.owner != new.owner:
            return EnqueueDecision(EnqueueStatus.REFUSED, error=parent_not_found(new, parent_id))
        if parent.open:
            waits_for.append(parent_id)
        elif parent.state is not State.SUCCEEDED and new.on_parent is not OnParent.RUN:
            failed_parent = failed_parent or parent
    return EnqueueDecision(
        EnqueueStatus.CREATED, waits_for=tuple(waits_for), failed_parent=failed_parent
    )


def parent_not_found(new: NewJob, parent_id: UUID) -> NotFoundError:
    return NotFoundError(
        f"job {new.id} depends on job {parent_id}, which does not exist; "
        "enqueue a job after the jobs that it depends on"
    )


def origin_not_found(new: NewJob) -> NotFoundError:
    return NotFoundError(f"cannot retry job {new.retry_of}: no such job")


def cancel_displaced(displaced: JobRow) -> CancelRequest:
    """Return the cancel of a waiting job that a debounced one replaces."""
    return CancelRequest(job_id=displaced.id, reason="replaced by a newer job")


def batch_conflict(
    children: Sequence[NewJob], conflicts: Callable[[NewJob], Conflicts]
) -> RequestError | None:
    """Return the error that prevents storing all of these jobs; None if all can be stored.

    Children and the jobs of a flow are stored all or none. A job may depend on earlier ones.
    """
    before: dict[UUID, NewJob] = {}
    duplicates: dict[UUID, ConflictError] = {}  # error of jobs that depend on the duplicate
    keys: dict[tuple[str, ...], NewJob] = {}  # of the earlier jobs
    for child in children:
        error = next((duplicates[id_] for id_ in child.depends_on if id_ in duplicates), None)
        if error is not None:
            return error
        same = before.get(child.id)
        if same is not None:
            if same.owner != child.owner or _differs(child, same):
                return _taken(child)
            continue
        sibling = _sibling(child, keys)
        stored = conflicts(child)
        if child.depends_on:
            siblings = {id_: _as_parent(before[id_]) for id_ in child.depends_on if id_ in before}
            stored = replace(stored, parents={**siblings, **stored.parents})
        # A duplicate does not need its parents.
        decision = decide_enqueue(replace(child, depends_on=()) if sibling else child, stored)
        if decision.error is not None:
            return decision.error
        other = decision.existing or sibling
        if other is not None and other.id != child.id:
            if other.request_id == child.request_id is not None and _differs(child, other):
                return _reused(child, other.id)
            duplicates[child.id] = _duplicate_error(child, other)
            continue
        before[child.id] = child
        if decision.existing is None:
            keys |= dict.fromkeys(_keys(child), child)
    return None


def _as_parent(new: NewJob) -> Parent:
    return Parent(new.id, new.owner, State.CREATED)


def _keys(new: NewJob) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = []
    if new.request_id is not None:
        keys.append((_REQUEST, new.owner, new.request_id))
    if new.unique_key is not None:
        keys.append((_UNIQUE, new.owner, new.task, new.unique_key))
    return keys


def _sibling(new: NewJob, keys: Mapping[tuple[str, ...], NewJob]) -> NewJob | None:
    """Return the earlier job with the same key; a debounced job replaces such a job instead."""
    for key in _keys(new):
        if key in keys and not (new.debounce and key[0] == _UNIQUE):
            return keys[key]
    return None


def _duplicate_error(new: NewJob, other: JobRow | NewJob) -> ConflictError:
    """Return the error of a job that depends on a duplicate."""
    if new.request_id is not None and other.request_id == new.request_id:
        what = f"{_REQUEST} {new.request_id!r}"
    elif new.unique_key is not None and other.unique_key == new.unique_key:
        what = f"{_UNIQUE} {new.unique_key!r}"
    else:
        what = f"retry of {new.retry_of}"
    where = f"is {other.state}" if isinstance(other, JobRow) else "is in the same call"
    return ConflictError(
        f"job {new.id} of task {new.task!r}: the {what} is already held by job {other.id}, which "
        f"{where}; other jobs depend on the new one, so none is enqueued. Wait for that job, "
        "depend on it instead, or use another key"
    )


def batch_error(
    jobs: Sequence[NewJob], conflicts: Callable[[NewJob], Conflicts]
) -> RequestError | None:
    """Like `batch_conflict`, but also validates each job first."""
    try:
        for new in jobs:
            check_new_job(new)
    except RequestError as error:
        return error
    return batch_conflict(jobs, conflicts)


def _differs(new: NewJob, other: JobRow | NewJob) -> bool:
    return new.digest is not None and other.digest is not None and new.digest != other.digest


def _reused(new: NewJob, other: UUID) -> ConflictError:
    return ConflictError(
        f"request id {new.request_id!r} was used for job {other} with different arguments; "
        "use a new request id for a new request"
    )


def _taken(new: NewJob) -> ConflictError:
    return ConflictError(f"job id {new.id} is taken; enqueue with a new id")


def _same_id(new: NewJob, row: JobRow) -> EnqueueDecision:
    # Reveals nothing about another owner's job, not even its existence.
    if row.owner != new.owner or _differs(new, row):
        return EnqueueDecision(EnqueueStatus.CONFLICT, error=_taken(new))
    return EnqueueDecision(EnqueueStatus.CREATED, row)


def _same_request(new: NewJob, row: JobRow) -> EnqueueDecision:
    if _differs(new, row):
        return EnqueueDecision(EnqueueStatus.CONFLICT, row, error=_reused(new, row.id))
    return EnqueueDecision(EnqueueStatus.DUPLICATE, row)


def _retry(new: NewJob, conflicts: Conflicts) -> EnqueueDecision | None:
    origin = conflicts.origin
    if origin is None or origin.owner != new.owner:
        return EnqueueDecision(EnqueueStatus.REFUSED, error=origin_not_found(new))
    if not origin.final:
        error = ConflictError(
            f"job {origin.id} is {origin.state}; only a finished job can be retried"
        )
        return EnqueueDecision(EnqueueStatus.CONFLICT, origin, error=error)
    if conflicts.active_retry is not None:
        return EnqueueDecision(EnqueueStatus.DUPLICATE, conflicts.active_retry)
    return None
