"""Codec between rows of `windlass_job` and core values, compiled from the table of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.job.dependency import OnParent
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow, LifecycleRow
from windlass.core.job.state import FINAL, State, Trigger
from windlass.stores.postgres.connection import Row
from windlass.stores.sql.job_columns import (
    JOB_COLUMNS,
    LIFECYCLE_COLUMNS,
    REQUEST_COLUMNS,
    SAVED_COLUMNS,
    Coding,
    Column,
    names,
)
from windlass.stores.sql.row_codecs import (
    CODING_NAMES,
    DECODED_CODINGS,
    ENCODED_CODINGS,
    NO_HEADERS,
)
from windlass.stores.sql.row_compiler import Expressions, compile_decoder, compile_encoder

MAX_ROWS = 10_000
MAX_BYTES = 64 * 1024 * 1024
# Arrays of `insert_jobs` after those of the request: values for a new job that no caller sets, or
# that are no columns.
INSERT_EXTRAS = {
    "root_id": "uuid", "last_step": "text", "delay": "bigint", "run_at": "bigint",
    "expires_in": "bigint", "expires_at": "bigint", "waiting_for": "bigint",
}  # fmt: skip
# Arrays of `save_jobs` after those of the saved columns.
SAVE_EXTRAS = {
    "n": "bigint", "logged": "boolean", "requeued": "boolean", "fair_position": "bigint",
    "waits": "boolean", "at": "bigint",
}  # fmt: skip
_INSERTED = (*names(REQUEST_COLUMNS), *INSERT_EXTRAS)
ID_INDEX = _INSERTED.index("id")
PAYLOAD_INDEX = _INSERTED.index("payload")  # in `insert_params`
RESULT_INDEX = names(SAVED_COLUMNS).index("result")  # in `save_params`
# Columns whose values are usually equal in all jobs of an enqueue, and never NULL.
SHARED = ("queue", "task", "priority", "owner", "held", "delay")
_SHARED_INDEXES = tuple(map(_INSERTED.index, SHARED))
# Columns that `insert_uniform` stores, in its order; other fields of its jobs have the default.
UNIFORM = (
    "queue", "task", "priority", "policy", "lease", "owner", "team", "tags", "headers",
)  # fmt: skip
# Fields that differ between uniform jobs, or that only jobs with keys or parents set.
_OWN_FIELDS = {
    "id", "payload", "request_id", "unique_key", "debounce", "retry_of", "resume", "depends_on",
}  # fmt: skip
_SHARED_FIELDS = [item.name for item in fields(NewJob) if item.name not in _OWN_FIELDS]
# Called with positional arguments, in field order: keyword arguments cost 2 µs more per row.
_job: Callable[..., JobRow] = JobRow


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
    for index in _SHARED_INDEXES:
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
    if _unusual_fields(jobs[0]) != _USUAL:
        return None
    shared = _shared_fields(jobs[0])
    if any(_shared_fields(new) != shared for new in jobs):
        return None
    return _uniform(jobs[0])


def insert_params(
    new: NewJob,
    root_id: UUID | None = None,
    last_step: str | None = None,
    waiting_for: int = 0,
) -> Row:
    """Return the parameters of `insert_jobs` for one job."""
    values = (
        root_id, last_step, round(new.delay * SECOND) if new.delay else 0, new.run_at,
        _microseconds(new.expires_in), new.expires_at, waiting_for or None,
    )  # fmt: skip
    return _request(new) + values


def _array(texts: Sequence[str]) -> str:
    """Encode an array as text: the driver cannot send arrays inside arrays."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in escaped) + "}"


_decoded = Expressions(
    by_coding={**DECODED_CODINGS, Coding.TEXTS: "() if {0} is None else tuple({0})"},
    by_column={},
    names=CODING_NAMES,
)
_encoded = Expressions(
    by_coding={**ENCODED_CODINGS, Coding.TEXTS: "array({0}) if {0} else None"},
    by_column={
        "error_body": "None if {0} is None else {0}.body",
        "on_parent": "None if {0} is usual_on_parent else {0}",
    },
    names={**CODING_NAMES, "array": _array, "usual_on_parent": OnParent.CANCEL},
)
_request_field: Callable[[Column], str] = attrgetter("request_field")
# Decodes a row of `{columns}`; ignores further columns.
job_row = compile_decoder(JobRow, JOB_COLUMNS, _decoded, is_tuple=False)
# Decodes a row of `lock_lifecycles`. It has no result: only finished jobs have one.
lifecycle_row = compile_decoder(LifecycleRow, LIFECYCLE_COLUMNS, _decoded, is_tuple=False)
# Encodes the changeable fields of a `LifecycleRow`: the first parameters of `save_jobs`.
save_params = compile_encoder(SAVED_COLUMNS, _encoded, attrgetter("row_field"))
_request = compile_encoder(REQUEST_COLUMNS, _encoded, _request_field)
_uniform = compile_encoder(
    [column for name in UNIFORM for column in REQUEST_COLUMNS if column.name == name],
    replace(_encoded, by_coding={**_encoded.by_coding, Coding.TEXTS: "list({0}) or None"}),
    _request_field,
)
_shared_fields = attrgetter(*_SHARED_FIELDS)
_unusual_fields = attrgetter(*(name for name in _SHARED_FIELDS if name not in UNIFORM))
_USUAL = _unusual_fields(NewJob(id=UUID(int=0), task=""))


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
        serial=n, payload=payload, priority=priority, headers=NO_HEADERS,
        gates=() if gates is None else tuple(gates), limit_key=limit_key,
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
