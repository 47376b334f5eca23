"""Codec between rows of the job table and core values, compiled from the table of columns."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.admission.gates import limit_name, next_gate
from windlass.core.clock import Instant
from windlass.core.decisions.transition import Changes
from windlass.core.ids import uuid_of
from windlass.core.job.failure import Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import InitialState, JobRow, LifecycleRow, initial_state
from windlass.core.job.state import State
from windlass.core.versioned_record import Entry
from windlass.stores.sql.job_columns import (
    JOB_COLUMNS,
    LIFECYCLE_COLUMNS,
    REQUEST_COLUMNS,
    Coding,
    index_of,
)
from windlass.stores.sql.row_codecs import CODING_NAMES, DECODED_CODINGS, ENCODED_CODINGS
from windlass.stores.sql.row_compiler import Expressions, compile_decoder, compile_encoder

Row: TypeAlias = tuple[Any, ...]

INLINE_PAYLOAD = 4096  # bytes; a larger payload has its own row, which updates do not rewrite


@lru_cache(maxsize=4096)
def _token(value: bytes) -> UUID:
    """Decode a token. Cached: all jobs of one claim have the same token."""
    return UUID(bytes=value)


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


_decoded = Expressions(
    by_coding={
        **DECODED_CODINGS,
        Coding.UUID: "None if {0} is None else UUID(bytes={0})",
        Coding.BOOLEAN: "{0} != 0",
        Coding.TEXTS: "() if {0} is None else tuple(loads({0}))",
    },
    by_column={
        "id": 'uuid_of(number({0}, "big"))',
        "token": "None if {0} is None else to_token({0})",
        "gates": "() if {0} is None else gate_names({0})",
        "payload": "{0} if {0} is not None else other_payload",
    },
    names={
        **CODING_NAMES,
        "UUID": UUID, "uuid_of": uuid_of, "number": int.from_bytes, "to_token": _token,
        "gate_names": gate_names,
    },
)  # fmt: skip
# Decodes a row of `{columns}`; the second argument is a payload that has its own row.
job_row = compile_decoder(JobRow, JOB_COLUMNS, _decoded, more="other_payload=None")
# Decodes a row of `get_lifecycle`; the second argument is the id, which the caller has.
lifecycle_row = compile_decoder(
    LifecycleRow,
    LIFECYCLE_COLUMNS,
    replace(_decoded, by_column={**_decoded.by_column, "id": "job_id"}),
    more="job_id",
)
_request = compile_encoder(
    REQUEST_COLUMNS,
    Expressions(
        by_coding={
            **ENCODED_CODINGS,
            Coding.UUID: "None if {0} is None else {0}.bytes",
            Coding.TEXTS: "dumps({0}) if {0} else None",
        },
        by_column={
            "id": "{0}.bytes",
            "payload": f"None if len({{0}}) > {INLINE_PAYLOAD} else {{0}}",
        },
        names=CODING_NAMES,
    ),
    attrgetter("request_field"),
)
# Indexes in a row of `{columns}` and of `{lifecycle_columns}`.
ID, N, FENCE, STARTED_AT, GATES, PRIORITY, LIMIT_KEY, OWNER, LOGGED = map(
    index_of,
    ("id", "n", "fence", "started_at", "gates", "priority", "limit_key", "owner", "logged"),
)
_POSITION, PAYLOAD, _ERROR, _ERROR_BODY = map(
    index_of, ("position", "payload", "error", "error_body")
)
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
    values = (
        serial, None if root_id is None else root_id.bytes, now, start.expires_at, start.state,
        position, start.due_at, now if queued else None, now, start.seq,
        start.seq if queued else 0, last_step, waiting_for,
        _gates_text(gates) if gates else None, gate,
    )  # fmt: skip
    return _request(new) + values


@lru_cache(maxsize=4096)
def _gates_text(gates: tuple[str, ...]) -> str:
    return json.dumps(gates)


def needs_payload(r: Row) -> bool:
    return r[PAYLOAD] is None


def save_parameters(r: Row, changes: Changes, position: int | None, *, logged: bool) -> list[Any]:
    """Return the parameters of `save_job`: the row of `get_lifecycle` with the changes applied."""
    values = list(r)
    for name, value in changes.items():
        if name == "error":
            assert value is None or isinstance(value, Failure)
            values[_ERROR] = value.encode() if value else None
            values[_ERROR_BODY] = value.body if value else None
        else:
            values[index_of(name)] = value
    if position is not None:
        values[_POSITION] = position
    if logged:
        values[LOGGED] = 1
    return values


def entry(r: Row) -> Entry:
    kind, key, value, version, expires_at = r
    return Entry(kind=kind, key=key, value=value, version=version, expires_at=expires_at)
