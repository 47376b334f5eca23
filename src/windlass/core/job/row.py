"""Stored rows of jobs.

`JobRow` is the stored row. Its base class `LifecycleRow` has the fields that decisions read and
change. `new_row` builds the row of a request. All instants come from the store's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from uuid import UUID

from windlass.core.clock import Instant, after
from windlass.core.fast_dataclass import positional_value, value
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.lease import Lease
from windlass.core.job.new_job import CORRELATION_ID, DEFAULT_POLICY, NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.job.state import FINAL, State, Trigger


@value
class LifecycleRow:
    """The fields of a row that decisions read and change, with the current attempt.

    `base_*` is the progress at the start of the attempt. `queued_seq` and `started_seq` are its
    event numbers; 0 after they moved to the log with a past attempt. `last_record` is the highest
    record number stored for the current fence. `waiting_for` counts the jobs that must end first.
    `awaited`: other jobs wait for this one. `signals` counts the received signals. `gates` must
    admit the job before each attempt; it waits at `gate`.
    """

    id: UUID
    queue: str
    task: str
    created_at: Instant
    expires_at: Instant | None = None
    state: State = State.CREATED
    trigger: Trigger = Trigger.ENQUEUE
    held: bool = False
    waiting_for: int = 0
    position: int | None = None
    due_at: Instant | None = None
    attempt: int = 0
    fence: int = 0
    token: UUID | None = None
    worker: str | None = None
    lease_until: Instant | None = None
    queued_at: Instant | None = None
    started_at: Instant | None = None
    first_started_at: Instant | None = None
    ended_at: Instant | None = None
    updated_at: Instant = 0
    seq: int = 1
    queued_seq: int = 0
    started_seq: int = 0
    last_record: int = 0
    percent: int = 0
    stage: str | None = None
    phase: str | None = None
    base_percent: int = 0
    base_stage: str | None = None
    base_phase: str | None = None
    retry_count: int = 0
    crash_count: int = 0
    cancel_at: Instant | None = None
    cancel_by: str | None = None
    cancel_reason: str | None = None
    error: Failure | None = None
    result: bytes | None = None
    last_step: str | None = None
    on_parent: OnParent = OnParent.CANCEL
    awaited: bool = field(default=False, compare=False)  # only a hint for the store
    signals: int = 0
    gates: tuple[str, ...] = ()
    gate: str | None = None

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL

    @property
    def completed_at(self) -> Instant | None:
        return self.ended_at if self.state is State.SUCCEEDED else None

    @property
    def failed_at(self) -> Instant | None:
        return self.ended_at if self.state is State.FAILED else None

    @property
    def canceled_at(self) -> Instant | None:
        return self.ended_at if self.state is State.CANCELED else None

    @property
    def cancel_requested(self) -> bool:
        """Whether the cancel of a running job was requested; it will end as canceled."""
        return self.cancel_at is not None

    @property
    def isolated(self) -> bool:
        """Whether it must run in its own process, because a worker died while it ran."""
        return self.crash_count > 0


@value
class JobRow(LifecycleRow):
    """The stored row of a job. `serial` is its number in the order of arrival."""

    serial: int = 0
    payload: bytes = b"null"
    priority: int = 0
    policy: Policy = DEFAULT_POLICY
    lease_seconds: float | None = None
    owner: str = ""
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str | None = None
    digest: bytes | None = None
    unique_key: str | None = None
    retry_of: UUID | None = None
    retried_as: UUID | None = None
    root_id: UUID | None = None
    log_floor: int = 0
    flow_id: UUID | None = None
    limit_key: str | None = None

    @property
    def lease(self) -> Lease:
        """Return the lease of its attempt; only a claimed job has one."""
        assert self.token is not None, "only a claimed job has a lease"
        return Lease(self.id, self.fence, self.token)

    @property
    def correlation_id(self) -> str:
        """Return the id shared by all jobs of one request; by default the id of the first job."""
        return self.headers.get(CORRELATION_ID) or str(self.id)

    @property
    def lineage(self) -> UUID:
        """Return the first job of its retries, whose workspace they share."""
        return self.root_id or self.id

    @property
    def can_resume(self) -> bool:
        """Whether it ended without success after at least one completed step."""
        return self.state in {State.FAILED, State.CANCELED} and self.last_step is not None


@positional_value
class InitialState:
    """State and instants of a new job."""

    state: State
    seq: int
    queued_at: Instant | None
    due_at: Instant | None
    expires_at: Instant | None


def initial_state(new: NewJob, now: Instant, waiting_for: int = 0) -> InitialState:
    """Return the state of a new job, before gates are considered."""
    due = new.run_at if new.run_at is not None else after(now, new.delay) if new.delay else now
    expires = new.expires_at
    if expires is None and new.expires_in is not None:
        expires = after(now, new.expires_in)
    if new.hold or waiting_for or due > now:
        return InitialState(State.CREATED, 1, None, due if due > now else None, expires)
    return InitialState(State.QUEUED, 2, now, None, expires)


def new_row(
    new: NewJob,
    now: Instant,
    serial: int,
    root_id: UUID | None = None,
    waiting_for: int = 0,
    *,
    gates: tuple[str, ...] = (),
) -> JobRow:
    """Return the row of a new job."""
    start = initial_state(new, now, waiting_for)
    queued = start.state is State.QUEUED
    gate = gates[0] if queued and gates else None
    if gate is not None:
        start, queued = InitialState(State.CREATED, 1, None, None, start.expires_at), False
    return JobRow(
        id=new.id,
        serial=serial,
        queue=new.queue,
        task=new.task,
        payload=new.payload,
        priority=new.priority,
        policy=new.policy,
        lease_seconds=new.lease,
        owner=new.owner,
        team=new.team,
        tags=new.tags,
        headers=new.headers,
        request_id=new.request_id,
        digest=new.digest,
        unique_key=new.unique_key,
        retry_of=new.retry_of,
        root_id=root_id,
        state=start.state,
        held=new.hold,
        waiting_for=waiting_for,
        on_parent=new.on_parent,
        flow_id=new.flow_id,
        limit_key=new.limit_key,
        gates=gates,
        gate=gate,
        position=serial if queued or gate is not None else None,
        due_at=start.due_at,
        expires_at=start.expires_at,
        created_at=now,
        queued_at=start.queued_at,
        updated_at=now,
        seq=start.seq,
        queued_seq=start.seq if queued else 0,
    )
