"""Between rows of the `windlass_job` table and the core's values. Rows are read by place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.retry import Policy
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.lease import Claim
from windlass.core.job.row import DEFAULT_POLICY, JobRow, NewJob, Standing
from windlass.core.job.state import FINAL, State, Trigger
from windlass.stores.postgres.connection import Row

MOST_ROWS = 10_000
MOST_BYTES = 64 * 1024 * 1024
PAYLOAD = 3  # its place in an insertion
_SHARED = (1, 2, 4, 7, 17, 18)  # queue, task, priority, owner, hold, delay
_STATES = {state.value: state for state in State}
_TRIGGERS = {trigger.value: trigger for trigger in Trigger}
_POLICIES = {policy.value: policy for policy in OnParent}
_DEFAULT_POLICY_TEXT = DEFAULT_POLICY.encode()
_NO_HEADERS: Mapping[str, str] = {}
# Rows are made by place, in the order of the dataclass: named arguments would cost 2 µs more each.
_job: Callable[..., JobRow] = JobRow
_standing: Callable[..., Standing] = Standing


def columns(rows: Iterable[Row]) -> list[Sequence[Any]]:
    """Rows, at least one, as an array for each column: so a statement takes many of them.

    A column without any value is left empty: `unnest` fills it up, at a fifth of the cost.
    """
    return [
        () if column[0] is column[-1] is None and _bare(column) else column
        for column in zip(*rows, strict=True)
    ]


def insertions(rows: Sequence[Row]) -> list[Sequence[Any]]:
    """The same for `insert_jobs`: of a column that is never without a value, one is enough for all.

    To write an array costs more than all the rest.
    """
    given = columns(rows)
    for place in _SHARED:
        column = given[place]
        if column.count(column[0]) == len(column):
            given[place] = column[:1]
    return given


def _bare(column: Sequence[Any]) -> bool:
    return all(value is None for value in column)


def fits(values: Sequence[bytes | None]) -> bool:
    """Whether one message can carry these."""
    return len(values) <= MOST_ROWS and sum(len(it) for it in values if it) <= MOST_BYTES


def portions(rows: Sequence[Row], bulk: int) -> Iterator[Sequence[Row]]:
    """The rows in as few pieces as one message each can carry; `bulk` is the column that is large.

    The server takes no array of a gibibyte, and a thousand payloads may be that.
    """
    if not rows:
        return
    if fits([row[bulk] for row in rows]):
        yield rows
        return
    weights = [len(row[bulk] or b"") for row in rows]
    piece: list[Row] = []
    weight = 0
    for row, more in zip(rows, weights, strict=True):
        if piece and (len(piece) == MOST_ROWS or weight + more > MOST_BYTES):
            yield piece
            piece, weight = [], 0
        piece.append(row)
        weight += more
    yield piece


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def alike(jobs: Sequence[NewJob]) -> Row | None:
    """What these jobs have in common, as parameters of `insert_alike`; None if they are not alike.

    They are if they can all run at once, with nothing to work out, and only their arguments differ.
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
    shared = _shared(first)
    if any(_shared(new) != shared for new in jobs):
        return None
    asked = _asked(first)
    return (*asked[:-2], list(first.tags) or None, asked[-1])


_shared = attrgetter(
    "queue", "task", "priority", "policy", "lease", "owner", "team", "tags", "headers",
    "hold", "delay", "run_at", "expires_in", "expires_at", "digest", "on_parent", "flow_id",
    "limit_key",
)  # fmt: skip


def _asked(new: NewJob) -> Row:
    """From the queue to the headers, without what is each job's own."""
    policy = new.policy
    return (
        new.queue, new.task, new.priority,
        None if policy is DEFAULT_POLICY else _policy_text(policy),
        None if new.lease is None else round(new.lease * SECOND),
        new.owner, new.team,
        _array(new.tags) if new.tags else None,
        json.dumps(dict(new.headers)) if new.headers else None,
    )  # fmt: skip


def insertion(
    new: NewJob,
    root_id: UUID | None = None,
    last_step: str | None = None,
    waiting_for: int = 0,
) -> Row:
    """The parameters of `insert_jobs` for one job."""
    queue, task, *rest = _asked(new)
    return (
        new.id, queue, task, new.payload, *rest, new.digest, new.request_id, new.unique_key,
        new.retry_of, root_id, last_step, new.hold,
        round(new.delay * SECOND) if new.delay else 0,
        new.run_at, _micros(new.expires_in), new.expires_at, waiting_for or None,
        None if new.on_parent is OnParent.CANCEL else new.on_parent, new.flow_id, new.limit_key,
    )  # fmt: skip


def _array(texts: Sequence[str]) -> str:
    """An array inside an array has to be written as text."""
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
    """The whole row; what stands behind its own columns is not looked at."""
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


def claimed(record: Row, wish: Claim) -> JobRow:
    """What `claim` answers: the whole row, or what is not known of a job just begun."""
    (
        job_id, n, queue, task, created_at, started_at, lease_until, payload, priority, whole,
        position, queued_at, limit_key, gates,
    ) = record  # fmt: skip
    if whole is not None:
        return job_row(whole)
    return _job(
        job_id, queue, task, created_at, None,  # expires_at
        State.RUNNING, Trigger.CLAIM, False, 0, position or n, None,  # held, waiting_for, due_at
        1, 1, wish.token, wish.worker, lease_until,  # attempt, fence
        queued_at or created_at, started_at, started_at, None, started_at,  # to updated_at
        3, 2, 3,  # seq, queued_seq, started_seq
        serial=n, payload=payload, priority=priority, headers=_NO_HEADERS,
        gates=() if gates is None else tuple(gates), limit_key=limit_key,
    )  # fmt: skip


def standing(record: Row) -> Standing:
    """What the `standings` query read. The result is left out: only a finished job has one."""
    r = tuple(record)
    return _standing(
        *r[:5],
        _STATES[r[5]], _TRIGGERS[r[6]],
        *r[7:36],
        None if r[36] is None else Failure.decode(r[36], r[37]),
        None, r[38], _POLICIES[r[44]], r[45], r[46],
        () if r[47] is None else tuple(r[47]), r[48],
    )  # fmt: skip


def saved(s: Standing) -> tuple[Any, ...]:
    """The parameters of `save`, from the state to the last step."""
    error = s.error
    return (
        s.state, s.trigger, s.held, s.position, s.due_at, s.lease_until, s.queued_at, s.started_at,
        s.ended_at, s.updated_at, s.seq, s.queued_seq, s.started_seq, s.said, s.percent, s.stage,
        s.phase, s.base_percent, s.base_stage, s.base_phase, s.retry_count, s.crash_count,
        s.cancel_at, s.cancel_by, s.cancel_reason,
        None if error is None else error.encode(),
        None if error is None else error.body,
        s.result, s.last_step, s.waiting_for, s.signals, s.gate,
    )  # fmt: skip


def waiting(s: Standing) -> tuple[bool, Instant | None]:
    """Whether `windlass_waiting` has a row for it, and the time at which to look at it.

    Whoever waits at a gate is counted by `windlass_parked`, and needs a row for such a time only.
    Core's `upkeep.due_since` says since when that time has passed; the model compares the two.
    """
    if s.state is State.RUNNING or s.state in FINAL:
        return False, None
    times: list[Instant] = []
    aside = s.state is not State.QUEUED
    blocked = s.held or (s.waiting_for and s.state is State.CREATED)
    if aside and s.due_at is not None and not blocked:
        times.append(s.due_at)
    if s.expires_at is not None and s.first_started_at is None and s.state is not State.RETRYING:
        times.append(s.expires_at)
    return (aside and s.gate is None) or bool(times), min(times, default=None)
