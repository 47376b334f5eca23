"""Codec between rows of the job table and core values. Columns are read by index, for speed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.admission.gates import limit_name, next_gate
from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.transition import Changes
from windlass.core.ids import uuid_of
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.new_job import DEFAULT_POLICY, NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.job.row import InitialState, JobRow, LifecycleRow, initial_state
from windlass.core.job.state import State, Trigger
from windlass.core.versioned_record import Entry

Row: TypeAlias = tuple[Any, ...]

INLINE_PAYLOAD = 4096  # bytes; a larger payload has its own row, which updates do not rewrite
_number = int.from_bytes
_STATES = {state.value: state for state in State}
_TRIGGERS = {trigger.value: trigger for trigger in Trigger}
_POLICIES = {policy.value: policy for policy in OnParent}
_DEFAULT_POLICY_TEXT = DEFAULT_POLICY.encode()
_NO_HEADERS: Mapping[str, str] = {}

SAVED_COLUMNS = (
    "state", "trigger", "held", "waiting_for", "position", "due_at", "attempt", "fence", "token",
    "worker", "lease_until", "queued_at", "started_at", "first_started_at", "ended_at",
    "updated_at", "seq", "queued_seq", "started_seq", "last_record", "percent", "stage", "phase",
    "base_percent", "base_stage", "base_phase", "retry_count", "crash_count", "cancel_at",
    "cancel_by", "cancel_reason", "last_step", "error", "error_body", "result", "logged", "signals",
    "gate",
)  # fmt: skip
_INDEX = {name: index for index, name in enumerate(SAVED_COLUMNS)}
# Called with positional arguments, in field order: named arguments cost 2 µs more per row.
_job: Callable[..., JobRow] = JobRow
_lifecycle: Callable[..., LifecycleRow] = LifecycleRow
_SAVED_FROM = 10  # index of the first saved column in `get_lifecycle`
PRIORITY, LIMIT_KEY = 7, 8  # indexes in `get_lifecycle`
_SAVED_TO = _SAVED_FROM + len(SAVED_COLUMNS)
FENCE, STARTED_AT, GATES = 28, 33, 62  # indexes in a whole row


@lru_cache(maxsize=4096)
def _token(value: bytes) -> UUID:
    """Decode a token. Cached: all jobs of one claim have the same token."""
    return UUID(bytes=value)


def _uuid(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


@lru_cache(maxsize=4096)
def gate_names(text: str) -> tuple[str, ...]:
    """Decode the `gates` column. Cached: many jobs have the same value."""
    return tuple(json.loads(text))


@lru_cache(maxsize=4096)
def limit_names(text: str) -> frozenset[str]:
    """Return the limit names of a `gates` column."""
    return frozenset(map(limit_name, gate_names(text)))


@lru_cache(maxsize=4096)
def gate_after(text: str, gate: str) -> str | None:
    return next_gate(gate_names(text), gate)


_QUEUED_NOW = InitialState(State.QUEUED, 2, None, None, None)


def starts_queued(new: NewJob) -> bool:
    """Return whether the job is queued immediately: no delay, hold or expiry."""
    return not (
        new.hold
        or new.delay
        or new.run_at is not None
        or new.expires_in is not None
        or new.expires_at is not None
    )


def insertion(
    new: NewJob,
    now: Instant,
    serial: int,
    *,
    root_id: UUID | None = None,
    last_step: str | None = None,
    waiting_for: int = 0,
    gates: tuple[str, ...] = (),
    position: int | None = None,
) -> Row:
    """Return the parameters of `insert_job`: core's `new_row`; the model test compares the two."""
    start = (
        _QUEUED_NOW
        if not waiting_for and starts_queued(new)
        else initial_state(new, now, waiting_for)
    )
    queued = start.state is State.QUEUED
    position = (position or serial) if queued else None
    gate = gates[0] if queued and gates else None
    if gate is not None:
        start, queued = InitialState(State.CREATED, 1, None, None, start.expires_at), False
    policy = new.policy
    return (
        serial, new.id.bytes, new.queue, new.task, new.priority, new.owner, new.team,
        json.dumps(new.tags) if new.tags else None,
        json.dumps(dict(new.headers)) if new.headers else None,
        None if policy is DEFAULT_POLICY else _policy_text(policy),
        None if new.lease is None else round(new.lease * SECOND),
        new.request_id, new.digest, new.unique_key,
        None if new.retry_of is None else new.retry_of.bytes,
        None if root_id is None else root_id.bytes,
        now, start.expires_at, start.state, new.hold, position, start.due_at,
        now if queued else None, now, start.seq, start.seq if queued else 0,
        last_step, None if len(new.payload) > INLINE_PAYLOAD else new.payload,
        waiting_for, new.on_parent, None if new.flow_id is None else new.flow_id.bytes,
        new.limit_key, _gates_text(gates) if gates else None, gate,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _gates_text(gates: tuple[str, ...]) -> str:
    return json.dumps(gates)


@lru_cache(maxsize=256)
def _policy_text(policy: Policy) -> str | None:
    text = policy.encode()
    return None if text == _DEFAULT_POLICY_TEXT else text


def job_row(r: Row, payload: bytes | None = None) -> JobRow:
    """Decode a whole row; pass `payload` if the row does not contain it."""
    return _job(
        uuid_of(_number(r[1], "big")), r[2], r[3], r[17], r[18],
        _STATES[r[21]], _TRIGGERS[r[22]], r[23] != 0, r[24],
        *r[25:29],  # position, due_at, attempt, fence
        None if r[29] is None else _token(r[29]),
        *r[30:52],  # from worker to cancel_reason
        None if r[53] is None else Failure.decode(r[53], r[54]),
        r[55], r[52], _POLICIES[r[57]], r[58] != 0, r[59],
        () if r[GATES] is None else gate_names(r[GATES]),
        r[63], r[0],
        r[56] if r[56] is not None else payload,
        r[4],
        DEFAULT_POLICY if r[9] is None else Policy.decode(r[9]),
        None if r[10] is None else r[10] / SECOND,
        r[5], r[6],
        () if r[7] is None else tuple(json.loads(r[7])),
        _NO_HEADERS if r[8] is None else json.loads(r[8]),
        r[11], r[12], r[13], _uuid(r[14]), _uuid(r[15]), _uuid(r[16]), r[19], _uuid(r[60]),
        r[61],
    )  # fmt: skip


def needs_payload(r: Row) -> bool:
    return r[56] is None


def lifecycle_row(r: Row, job_id: UUID) -> LifecycleRow:
    """Decode a row of `get_lifecycle`."""
    return _lifecycle(
        job_id, r[1], r[2], r[3], r[4],
        _STATES[r[10]], _TRIGGERS[r[11]], r[12] != 0,
        *r[13:18],  # waiting_for, position, due_at, attempt, fence
        None if r[18] is None else _token(r[18]),
        *r[19:41],  # from worker to cancel_reason
        None if r[42] is None else Failure.decode(r[42], r[43]),
        r[44], r[41], _POLICIES[r[5]], r[6] != 0, r[46],
        () if r[9] is None else gate_names(r[9]),
        r[47],
    )  # fmt: skip


def save_parameters(r: Row, changes: Changes, position: int | None, *, logged: bool) -> list[Any]:
    """Return the parameters of `save_job`: the row with the changes applied."""
    values = list(r[_SAVED_FROM:_SAVED_TO])
    for name, value in changes.items():
        if name == "error":
            assert value is None or isinstance(value, Failure)
            values[_INDEX["error"]] = value.encode() if value else None
            values[_INDEX["error_body"]] = value.body if value else None
        elif name == "token":
            assert isinstance(value, UUID)
            values[_INDEX["token"]] = value.bytes
        else:
            values[_INDEX[name]] = value
    if position is not None:
        values[_INDEX["position"]] = position
    if logged:
        values[_INDEX["logged"]] = 1
    values.append(r[0])
    return values


def entry(r: Row) -> Entry:
    kind, key, value, version, expires_at = r
    return Entry(kind=kind, key=key, value=value, version=version, expires_at=expires_at)
