"""Whether a new job comes into being, or another one already stands for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.errors import ConflictError, NotFoundError, RequestError
from windlass.core.job import JobRow, NewJob, birth
from windlass.core.state import WAITING
from windlass.core.transition import CancelRequest
from windlass.core.value import pair


class EnqueueStatus(StrEnum):
    CREATED = "created"  # this job is stored, now or by an earlier call with the same id
    DUPLICATE = "duplicate"  # another job stands for it: the answer's row
    CONFLICT = "conflict"  # its id or request id already means something else
    REFUSED = "refused"  # the request itself is wrong; the answer's error says how


@pair
class Enqueued:
    """The answer to one enqueue. The row of a job just created is made only if somebody looks."""

    status: EnqueueStatus
    new: NewJob
    at: Instant = 0
    serial: int = 0
    existing: JobRow | None = None
    root_id: UUID | None = None
    error: RequestError | None = None

    @property
    def accepted(self) -> bool:
        return self.status in {EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE}

    @property
    def row(self) -> JobRow | None:
        if self.existing is not None or self.status is not EnqueueStatus.CREATED:
            return self.existing
        return birth(self.new, self.at, self.serial, self.root_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """The stored jobs that a new one could collide with, looked up by the store."""

    same_id: JobRow | None = None
    same_request: JobRow | None = None
    same_key: JobRow | None = None  # active, of the same owner and task
    origin: JobRow | None = None  # the job that this one retries
    active_retry: JobRow | None = None  # the active job of the origin's lineage, if any


@dataclass(frozen=True, slots=True)
class Admission:
    """`displace` is the waiting job that gives way (debounce), in the same write."""

    status: EnqueueStatus
    existing: JobRow | None = None
    displace: JobRow | None = None
    error: RequestError | None = None


def admit(new: NewJob, rivals: Rivals) -> Admission:
    if rivals.same_id is not None:
        return _same_id(new, rivals.same_id)
    if rivals.same_request is not None:
        return _same_request(new, rivals.same_request)
    if new.retry_of is not None:
        refusal = _retry(new, rivals)
        if refusal is not None:
            return refusal
    rival = rivals.same_key
    if rival is not None:
        if not (new.debounce and rival.state in WAITING):
            return Admission(EnqueueStatus.DUPLICATE, rival)
        return Admission(EnqueueStatus.CREATED, displace=rival)
    return Admission(EnqueueStatus.CREATED)


def give_way(displaced: JobRow) -> CancelRequest:
    """How a waiting job ends that a debounced one takes the place of."""
    return CancelRequest(job_id=displaced.id, reason="replaced by a newer job")


def refusal(children: Sequence[NewJob], rivals: Callable[[NewJob], Rivals]) -> RequestError | None:
    """Why these cannot all be handed over: children become real together, or not at all."""
    for child in children:
        verdict = admit(child, rivals(child))
        if verdict.error is not None:
            return verdict.error
    return None


def _differs(new: NewJob, row: JobRow) -> bool:
    return new.digest is not None and row.digest is not None and new.digest != row.digest


def _same_id(new: NewJob, row: JobRow) -> Admission:
    # Of another owner's job nothing is told, not even that it exists.
    if row.owner != new.owner or _differs(new, row):
        error = ConflictError(f"job id {new.id} is taken; enqueue with a new id")
        return Admission(EnqueueStatus.CONFLICT, error=error)
    return Admission(EnqueueStatus.CREATED, row)


def _same_request(new: NewJob, row: JobRow) -> Admission:
    if _differs(new, row):
        error = ConflictError(
            f"request id {new.request_id!r} was used for job {row.id} with different arguments; "
            "use a new request id for a new request"
        )
        return Admission(EnqueueStatus.CONFLICT, row, error=error)
    return Admission(EnqueueStatus.DUPLICATE, row)


def _retry(new: NewJob, rivals: Rivals) -> Admission | None:
    origin = rivals.origin
    if origin is None or origin.owner != new.owner:
        error: RequestError = NotFoundError(f"no job {new.retry_of} to retry")
        return Admission(EnqueueStatus.REFUSED, error=error)
    if not origin.final:
        error = ConflictError(
            f"job {origin.id} is {origin.state}; only a finished job can be retried"
        )
        return Admission(EnqueueStatus.CONFLICT, origin, error=error)
    if rivals.active_retry is not None:
        return Admission(EnqueueStatus.DUPLICATE, rivals.active_retry)
    return None
