"""Between rows of the `job` table and the core's values. Rows are read by place, for speed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.event import LogRow
from windlass.core.failure import Failure
from windlass.core.job import DEFAULT_POLICY, JobRow, NewJob, Standing, opening
from windlass.core.retry import Policy
from windlass.core.state import State, Trigger
from windlass.core.transition import Changes

Row: TypeAlias = tuple[Any, ...]

INLINE_PAYLOAD = 4096  # a larger payload has a row of its own, rewritten by nothing
_STATES = {state.value: state for state in State}
_TRIGGERS = {trigger.value: trigger for trigger in Trigger}
_DEFAULT_POLICY_TEXT = DEFAULT_POLICY.encode()
_NO_HEADERS: Mapping[str, str] = {}

SAVED = (
    "state", "trigger", "held", "position", "due_at", "attempt", "fence", "token", "worker",
    "lease_until", "queued_at", "started_at", "first_started_at", "ended_at", "updated_at", "seq",
    "queued_seq", "started_seq", "said", "percent", "stage", "phase", "base_percent", "base_stage",
    "base_phase", "retry_count", "crash_count", "cancel_at", "cancel_by", "cancel_reason",
    "last_step", "error", "error_body", "result", "logged",
)  # fmt: skip
_PLACE = {name: place for place, name in enumerate(SAVED)}
_HEAD = 6  # columns of the `standing` query before those that are saved


def _uuid(value: bytes | None) -> UUID | None:
    return None if value is None else UUID(bytes=value)


def _failure(facts: str | None, body: bytes | None) -> Failure | None:
    return None if facts is None else Failure.decode(facts, body)


def insertion(
    new: NewJob, now: Instant, serial: int, root_id: UUID | None, last_step: str | None
) -> Row:
    """The parameters of `insert_job`."""
    start = opening(new, now)
    queued = start.state is State.QUEUED
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
        now, start.expires_at, start.state, new.hold, serial if queued else None, start.due_at,
        start.queued_at, now, start.seq, start.seq if queued else 0, last_step,
        None if len(new.payload) > INLINE_PAYLOAD else new.payload,
    )  # fmt: skip


def _policy_text(policy: Policy) -> str | None:
    text = policy.encode()
    return None if text == _DEFAULT_POLICY_TEXT else text


def job_row(r: Row, payload: bytes | None = None) -> JobRow:
    """The whole row; `payload` where the row does not hold it itself."""
    return JobRow(
        serial=r[0],
        id=UUID(bytes=r[1]),
        queue=r[2],
        task=r[3],
        priority=r[4],
        owner=r[5],
        team=r[6],
        tags=tuple(json.loads(r[7])) if r[7] is not None else (),
        headers=json.loads(r[8]) if r[8] is not None else _NO_HEADERS,
        policy=Policy.decode(r[9]) if r[9] is not None else DEFAULT_POLICY,
        lease_seconds=r[10] / SECOND if r[10] is not None else None,
        request_id=r[11],
        digest=r[12],
        unique_key=r[13],
        retry_of=_uuid(r[14]),
        retried_as=_uuid(r[15]),
        root_id=_uuid(r[16]),
        created_at=r[17],
        expires_at=r[18],
        log_floor=r[19],
        state=_STATES[r[21]],
        trigger=_TRIGGERS[r[22]],
        held=r[23] != 0,
        waiting_for=r[24],
        position=r[25],
        due_at=r[26],
        attempt=r[27],
        fence=r[28],
        token=_uuid(r[29]),
        worker=r[30],
        lease_until=r[31],
        queued_at=r[32],
        started_at=r[33],
        first_started_at=r[34],
        ended_at=r[35],
        updated_at=r[36],
        seq=r[37],
        queued_seq=r[38],
        started_seq=r[39],
        said=r[40],
        percent=r[41],
        stage=r[42],
        phase=r[43],
        base_percent=r[44],
        base_stage=r[45],
        base_phase=r[46],
        retry_count=r[47],
        crash_count=r[48],
        cancel_at=r[49],
        cancel_by=r[50],
        cancel_reason=r[51],
        last_step=r[52],
        error=_failure(r[53], r[54]),
        result=r[55],
        payload=r[56] if r[56] is not None else (payload or b""),
    )


def needs_payload(r: Row) -> bool:
    return r[56] is None


def standing(r: Row, job_id: UUID) -> Standing:
    """What the `standing` query read."""
    return Standing(
        id=job_id,
        queue=r[1],
        task=r[2],
        created_at=r[3],
        expires_at=r[4],
        waiting_for=r[5],
        state=_STATES[r[6]],
        trigger=_TRIGGERS[r[7]],
        held=r[8] != 0,
        position=r[9],
        due_at=r[10],
        attempt=r[11],
        fence=r[12],
        token=_uuid(r[13]),
        worker=r[14],
        lease_until=r[15],
        queued_at=r[16],
        started_at=r[17],
        first_started_at=r[18],
        ended_at=r[19],
        updated_at=r[20],
        seq=r[21],
        queued_seq=r[22],
        started_seq=r[23],
        said=r[24],
        percent=r[25],
        stage=r[26],
        phase=r[27],
        base_percent=r[28],
        base_stage=r[29],
        base_phase=r[30],
        retry_count=r[31],
        crash_count=r[32],
        cancel_at=r[33],
        cancel_by=r[34],
        cancel_reason=r[35],
        last_step=r[36],
        error=_failure(r[37], r[38]),
        result=r[39],
    )


def saved(r: Row, changes: Changes, position: int | None, *, logged: bool) -> list[Any]:
    """The parameters of `save`: what stood there, with the changes over it."""
    values = list(r[_HEAD:])
    for name, value in changes.items():
        if name == "error":
            assert value is None or isinstance(value, Failure)
            values[_PLACE["error"]] = value.encode() if value else None
            values[_PLACE["error_body"]] = value.body if value else None
        elif name == "token":
            assert isinstance(value, UUID)
            values[_PLACE["token"]] = value.bytes
        else:
            values[_PLACE[name]] = value
    if position is not None:
        values[_PLACE["position"]] = position
    if logged:
        values[_PLACE["logged"]] = 1
    values.append(r[0])
    return values


def log_row(r: Row) -> LogRow:
    seq, at, kind, attempt, fence, said, facts, body = r
    return LogRow(
        seq=seq,
        at=at,
        type=kind,
        attempt=attempt,
        fence=fence,
        n=said,
        facts=json.loads(facts) if facts is not None else {},
        body=body,
    )


def log_insertion(n: int, line: LogRow) -> Row:
    facts = json.dumps(dict(line.facts), separators=(",", ":")) if line.facts else None
    return (
        n, line.seq, line.at, line.type, line.attempt, line.fence, line.n, facts, line.body
    )  # fmt: skip
