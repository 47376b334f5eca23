"""Conversion between rows of `windlass_job` and core values. Rows are read by position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import DEFAULT_POLICY, NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.job.row import JobRow, LifecycleRow
from windlass.core.job.state import FINAL, State, Trigger
from windlass.stores.postgres.connection import Row

MAX_ROWS = 10_000
MAX_BYTES = 64 * 1024 * 1024
PAYLOAD_INDEX = 3  # in `insert_params`
_SHARED_COLUMNS = (1, 2, 4, 7, 17, 18)  # queue, task, priority, owner, hold, delay
_STATES = {state.value: state for state in State}
_TRIGGERS = {trigger.value: trigger for trigger in Trigger}
_POLICIES = {policy.value: policy for policy in OnParent}
_DEFAULT_POLICY_TEXT = DEFAULT_POLICY.encode()
_NO_HEADERS: Mapping[str, str] = {}
# Called with positional arguments, in field order: keyword arguments cost 2 µs more per row.
_job: Callable[..., JobRow] = JobRow
_lifecycle_row: Callable[..., LifecycleRow] = LifecycleRow


def columns(rows: Iterable[Row]) -> list[Sequence[Any]]:
    """Transpose rows (at least one) to one array per column, for statements with `unnest`.

    A column of NULLs becomes an empty array: `unnest` pads it, at a fifth of the cost.
    """
    return [
        () if column[0] is column[-1] is None and _all_none(column) else column
        for column in zip(*rows, strict=True)
    ]


def insert_columns(rows: Sequence[Row]) -> list[Sequence[Any]]:
    """The same for `insert_jobs`: shared columns with equal values shrink to one element.

    Encoding arrays costs more than everything else.
    """
    arrays = columns(rows)
    for index in _SHARED_COLUMNS:
        column = arrays[index]
        if column.count(column[0]) == len(column):
            arrays[index] = column[:1]
    return arrays


def _all_none(column: Sequence[Any]) -> bool:
    return all(value is None for value in column)


def fits(values: Sequence[bytes | None]) -> bool:
    """Return whether these values fit in one message."""
    return len(values) <= MAX_ROWS and sum(len(value) for value in values if value) <= MAX_BYTES


def chunks(rows: Sequence[Row], large_column: int) -> Iterator[Sequence[Row]]:
    """Split rows into chunks that fit in one message, by the size of their large column.

    The server accepts no array of a gibibyte, which a thousand payloads may reach.
    """
    if not rows:
        return
    if fits([row[large_column] for row in rows]):
        yield rows
        return
    sizes = [len(row[large_column] or b"") for row in rows]
    chunk: list[Row] = []
    total = 0
    for row, size in zip(rows, sizes, strict=True):
        if chunk and (len(chunk) == MAX_ROWS or total + size > MAX_BYTES):
            yield chunk
            chunk, total = [], 0
        chunk.append(row)
        total += size
    yield chunk


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def shared_params(jobs: Sequence[NewJob]) -> Row | None:
    """Return the parameters of `insert_uniform`; None if these jobs are not uniform.

    Uniform jobs are claimable immediately and differ only in their arguments.
    """
    first = jobs[0]
    if (
        first.hold
        or first.delay
        or first.run_at is not None
        or first.expires_in is not None
        or first.expires_at is not None
        or first.digest is not None
        or first.flow_id is not None
        or first.limit_key is not None
        or first.on_parent is not OnParent.CANCEL
    ):
        return None
    shared = _shared_fields(first)
    if any(_shared_fields(new) != shared for new in jobs):
        return None
    params = _request_params(first)
    return (*params[:-2], list(first.tags) or None, params[-1])


_shared_fields = attrgetter(
    "queue", "task", "priority", "policy", "lease", "owner", "team", "tags", "headers",
    "hold", "delay", "run_at", "expires_in", "expires_at", "digest", "on_parent", "flow_id",
    "limit_key",
)  # fmt: skip


def _request_params(new: NewJob) -> Row:
    """Return the columns from queue to headers, without those that differ per job."""
    policy = new.policy
    return (
        new.queue, new.task, new.priority,
        None if policy is DEFAULT_POLICY else _policy_text(policy),
        None if new.lease is None else round(new.lease * SECOND),
        new.owner, new.team,
        _array(new.tags) if new.tags else None,
        json.dumps(dict(new.headers)) if new.headers else None,
    )  # fmt: skip


def insert_params(
    new: NewJob,
    root_id: UUID | None = None,
    last_step: str | None = None,
    waiting_for: int = 0,
) -> Row:
    """Return the parameters of `insert_jobs` for one job."""
    queue, task, *rest = _request_params(new)
    return (
        new.id, queue, task, new.payload, *rest, new.digest, new.request_id, new.unique_key,
        new.retry_of, root_id, last_step, new.hold,
        round(new.delay * SECOND) if new.delay else 0,
        new.run_at, _microseconds(new.expires_in), new.expires_at, waiting_for or None,
        None if new.on_parent is OnParent.CANCEL else new.on_parent, new.flow_id, new.limit_key,
    )  # fmt: skip


def _array(texts: Sequence[str]) -> str:
    """Encode an array as text: the driver cannot send arrays inside arrays."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in escaped) + "}"


@lru_cache(maxsize=256)
def _policy_text(policy: Policy) -> str | None:
    text = policy.encode()
    return None if text == _DEFAULT_POLICY_TEXT else text


@lru_cache(maxsize=256)
def _policy(text: str) -> Policy:
    return Policy.decode(text)


def job_row(record: Row) -> JobRow:
    """Convert a full row; further columns are ignored."""
    r = tuple(record)
    job_id, n, owner, request_id, root_id, flow_id, limit_key, gates, gate = r[:9]
    return _job(
        job_id, *r[9:13],  # from queue to expires_at
        _STATES[r[13]], _TRIGGERS[r[14]],
        *r[15:44],  # from held to cancel_reason
        None if r[44] is None else Failure.decode(r[44], r[45]),
        r[46], r[47],  # result, last_step
        _POLICIES[r[61]], r[62], r[63],  # on_parent, awaited, signals
        () if gates is None else tuple(gates), gate,
        n, r[48], r[49],  # serial, payload, priority
        DEFAULT_POLICY if r[50] is None else _policy(r[50]),
        None if r[51] is None else r[51] / SECOND,
        owner, r[52],
        () if r[53] is None else tuple(r[53]),
        _NO_HEADERS if r[54] is None else json.loads(r[54]),
        request_id, r[55], r[56], r[57], r[58],  # digest, unique_key, retry_of, retried_as
        root_id, r[59], flow_id, limit_key,  # log_floor
    )  # fmt: skip


def claimed(record: Row, request: Claim) -> JobRow:
    """Convert a row of `claim`: a full row, or the few columns of a job without history."""
    (
        job_id, n, queue, task, created_at, started_at, lease_until, payload, priority, full_row,
        position, queued_at, limit_key, gates,
    ) = record  # fmt: skip
    if full_row is not None:
        return job_row(full_row)
    return _job(
        job_id, queue, task, created_at, None,  # expires_at
        State.RUNNING, Trigger.CLAIM, False, 0, position or n, None,  # held, waiting_for, due_at
        1, 1, request.token, request.worker, lease_until,  # attempt, fence
        queued_at or created_at, started_at, started_at, None, started_at,  # to updated_at
        3, 2, 3,  # seq, queued_seq, started_seq
        serial=n, payload=payload, priority=priority, headers=_NO_HEADERS,
        gates=() if gates is None else tuple(gates), limit_key=limit_key,
    )  # fmt: skip


def lifecycle_row(record: Row) -> LifecycleRow:
    """Convert a row of `lock_lifecycles`. It has no result: only finished jobs have one."""
    r = tuple(record)
    return _lifecycle_row(
        *r[:5],
        _STATES[r[5]], _TRIGGERS[r[6]],
        *r[7:36],
        None if r[36] is None else Failure.decode(r[36], r[37]),
        None, r[38], _POLICIES[r[44]], r[45], r[46],
        () if r[47] is None else tuple(r[47]), r[48],
    )  # fmt: skip


def save_params(s: LifecycleRow) -> tuple[Any, ...]:
    """Return the parameters of `save_jobs`, from state to gate."""
    error = s.error
    return (
        s.state, s.trigger, s.held, s.position, s.due_at, s.lease_until, s.queued_at, s.started_at,
        s.ended_at, s.updated_at, s.seq, s.queued_seq, s.started_seq, s.last_record, s.percent,
        s.stage, s.phase, s.base_percent, s.base_stage, s.base_phase, s.retry_count,
        s.crash_count, s.cancel_at, s.cancel_by, s.cancel_reason,
        None if error is None else error.encode(),
        None if error is None else error.body,
        s.result, s.last_step, s.waiting_for, s.signals, s.gate,
    )  # fmt: skip


def waiting_entry(s: LifecycleRow) -> tuple[bool, Instant | None]:
    """Return whether `windlass_waiting` has a row for the job, and when the sweeper handles it.

    A job at a gate is counted in `windlass_gate_queue`; it has a row only for that time. The rule
    is core's `maintenance.due_since`; the model test compares the two.
    """
    if s.state is State.RUNNING or s.state in FINAL:
        return False, None
    times: list[Instant] = []
    unqueued = s.state is not State.QUEUED
    blocked = s.held or (s.waiting_for and s.state is State.CREATED)
    if unqueued and s.due_at is not None and not blocked:
        times.append(s.due_at)
    if s.expires_at is not None and s.first_started_at is None and s.state is not State.RETRYING:
        times.append(s.expires_at)
    return (unqueued and s.gate is None) or bool(times), min(times, default=None)
