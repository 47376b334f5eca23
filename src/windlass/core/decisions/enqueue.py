"""Whether a new job comes into being, or another one already stands for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.transition import CancelRequest
from windlass.core.errors import ConflictError, NotFoundError, RequestError
from windlass.core.job.dependency import OnParent, Parent
from windlass.core.job.row import JobRow, NewJob, birth, check
from windlass.core.job.state import WAITING, State
from windlass.core.value import pair

_REQUEST, _UNIQUE = "request id", "unique key"


class EnqueueStatus(StrEnum):
    CREATED = "created"  # this job is stored, now or by an earlier call with the same id
    DUPLICATE = "duplicate"  # another job stands for it: the answer's row
    CONFLICT = "conflict"  # its id or request id already means something else
    REFUSED = "refused"  # the request itself is wrong; the answer's error says how


@pair
class Enqueued:
    """The answer to one enqueue. The row of a job just created is made only if somebody looks.

    `place` is where it then stands, if not where its number says.
    """

    status: EnqueueStatus
    new: NewJob
    at: Instant = 0
    serial: int = 0
    existing: JobRow | None = None
    root_id: UUID | None = None
    error: RequestError | None = None
    gates: tuple[str, ...] = ()
    place: int | None = None

    @property
    def accepted(self) -> bool:
        return self.status in {EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE}

    @property
    def row(self) -> JobRow | None:
        if self.existing is not None or self.status is not EnqueueStatus.CREATED:
            return self.existing
        row = birth(self.new, self.at, self.serial, self.root_id, gates=self.gates)
        waits = row.position is None or self.place is None
        return row if waits else replace(row, position=self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """The stored jobs that a new one could collide with, looked up by the store."""

    same_id: JobRow | None = None
    same_request: JobRow | None = None
    same_key: JobRow | None = None  # active, of the same owner and task
    origin: JobRow | None = None  # the job that this one retries
    active_retry: JobRow | None = None  # the active job of the origin's lineage, if any
    parents: Mapping[UUID, Parent] = field(default_factory=dict)  # of those it depends on


@dataclass(frozen=True, slots=True)
class Admission:
    """`displace` is the waiting job that gives way (debounce), in the same write.

    `waits_for` are the parents that have not ended. `lost` is one that ended without success, so
    that the job is stored, and ends with it at once.
    """

    status: EnqueueStatus
    existing: JobRow | None = None
    displace: JobRow | None = None
    error: RequestError | None = None
    waits_for: tuple[UUID, ...] = ()
    lost: Parent | None = None

    @property
    def waiting_for(self) -> int:
        return len(self.waits_for) + (self.lost is not None)


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
    if rival is not None and not (new.debounce and rival.state in WAITING):
        return Admission(EnqueueStatus.DUPLICATE, rival)
    if new.depends_on:
        return replace(_depends(new, rivals.parents), displace=rival)
    return Admission(EnqueueStatus.CREATED, displace=rival)


def _depends(new: NewJob, parents: Mapping[UUID, Parent]) -> Admission:
    """Parents are there before their children: so there is no cycle."""
    waits_for: list[UUID] = []
    lost: Parent | None = None
    for parent_id in new.depends_on:
        parent = parents.get(parent_id)
        if parent is None or parent.owner != new.owner:
            return Admission(EnqueueStatus.REFUSED, error=no_parent(new, parent_id))
        if parent.open:
            waits_for.append(parent_id)
        elif parent.state is not State.SUCCEEDED and new.on_parent is not OnParent.RUN:
            lost = lost or parent
    return Admission(EnqueueStatus.CREATED, waits_for=tuple(waits_for), lost=lost)


def no_parent(new: NewJob, parent_id: UUID) -> NotFoundError:
    return NotFoundError(
        f"job {new.id} depends on {parent_id}, and there is no such job; "
        "enqueue a job after those that it depends on"
    )


def no_origin(new: NewJob) -> NotFoundError:
    return NotFoundError(f"no job {new.retry_of} to retry")


def give_way(displaced: JobRow) -> CancelRequest:
    """How a waiting job ends that a debounced one takes the place of."""
    return CancelRequest(job_id=displaced.id, reason="replaced by a newer job")


def refusal(children: Sequence[NewJob], rivals: Callable[[NewJob], Rivals]) -> RequestError | None:
    """Why these cannot all be stored: children and the jobs of a flow come together or not at all.

    One may depend on those before it.
    """
    before: dict[UUID, NewJob] = {}
    stood_for: dict[UUID, ConflictError] = {}  # jobs that another one stands for
    keys: dict[tuple[str, ...], NewJob] = {}  # of those before
    for child in children:
        error = next((stood_for[id_] for id_ in child.depends_on if id_ in stood_for), None)
        if error is not None:
            return error
        same = before.get(child.id)
        if same is not None:
            if same.owner != child.owner or _differs(child, same):
                return _taken(child)
            continue
        sibling = _sibling(child, keys)
        seen = rivals(child)
        if child.depends_on:
            siblings = {id_: _made(before[id_]) for id_ in child.depends_on if id_ in before}
            seen = replace(seen, parents={**siblings, **seen.parents})
        # Nobody asks for the parents of one that another stands for.
        verdict = admit(replace(child, depends_on=()) if sibling else child, seen)
        if verdict.error is not None:
            return verdict.error
        other = verdict.existing or sibling
        if other is not None and other.id != child.id:
            if other.request_id == child.request_id is not None and _differs(child, other):
                return _reused(child, other.id)
            stood_for[child.id] = _another(child, other)
            continue
        before[child.id] = child
        if verdict.existing is None:
            keys |= dict.fromkeys(_keys(child), child)
    return None


def _made(new: NewJob) -> Parent:
    return Parent(new.id, new.owner, State.CREATED)


def _keys(new: NewJob) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = []
    if new.request_id is not None:
        keys.append((_REQUEST, new.owner, new.request_id))
    if new.unique_key is not None:
        keys.append((_UNIQUE, new.owner, new.task, new.unique_key))
    return keys


def _sibling(new: NewJob, keys: Mapping[tuple[str, ...], NewJob]) -> NewJob | None:
    """The one before it that stands for it; debounced, it takes the place of such a one."""
    for key in _keys(new):
        if key in keys and not (new.debounce and key[0] == _UNIQUE):
            return keys[key]
    return None


def _another(new: NewJob, other: JobRow | NewJob) -> ConflictError:
    """What to tell whoever depends on a job that another one stands for."""
    if new.request_id is not None and other.request_id == new.request_id:
        what = f"{_REQUEST} {new.request_id!r}"
    elif new.unique_key is not None and other.unique_key == new.unique_key:
        what = f"{_UNIQUE} {new.unique_key!r}"
    else:
        what = f"retry of {new.retry_of}"
    where = f"is {other.state}" if isinstance(other, JobRow) else "comes before it"
    return ConflictError(
        f"job {new.id} of task {new.task!r} has the {what} of job {other.id}, which {where} and "
        "stands for it; jobs that depend on it would wait for nobody, so none of these is stored. "
        "Wait for the end of that job, depend on it instead, or give this one a key of its own"
    )


def refused(jobs: Sequence[NewJob], rivals: Callable[[NewJob], Rivals]) -> RequestError | None:
    """The same for jobs that nobody has looked at yet."""
    try:
        for new in jobs:
            check(new)
    except RequestError as error:
        return error
    return refusal(jobs, rivals)


def _differs(new: NewJob, other: JobRow | NewJob) -> bool:
    return new.digest is not None and other.digest is not None and new.digest != other.digest


def _reused(new: NewJob, other: UUID) -> ConflictError:
    return ConflictError(
        f"request id {new.request_id!r} was used for job {other} with different arguments; "
        "use a new request id for a new request"
    )


def _taken(new: NewJob) -> ConflictError:
    return ConflictError(f"job id {new.id} is taken; enqueue with a new id")


def _same_id(new: NewJob, row: JobRow) -> Admission:
    # Of another owner's job nothing is told, not even that it exists.
    if row.owner != new.owner or _differs(new, row):
        return Admission(EnqueueStatus.CONFLICT, error=_taken(new))
    return Admission(EnqueueStatus.CREATED, row)


def _same_request(new: NewJob, row: JobRow) -> Admission:
    if _differs(new, row):
        return Admission(EnqueueStatus.CONFLICT, row, error=_reused(new, row.id))
    return Admission(EnqueueStatus.DUPLICATE, row)


def _retry(new: NewJob, rivals: Rivals) -> Admission | None:
    origin = rivals.origin
    if origin is None or origin.owner != new.owner:
        return Admission(EnqueueStatus.REFUSED, error=no_origin(new))
    if not origin.final:
        error = ConflictError(
            f"job {origin.id} is {origin.state}; only a finished job can be retried"
        )
        return Admission(EnqueueStatus.CONFLICT, origin, error=error)
    if rivals.active_retry is not None:
        return Admission(EnqueueStatus.DUPLICATE, rivals.active_retry)
    return None
