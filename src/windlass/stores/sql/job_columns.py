"""The columns of a job in SQL stores, listed once: names, codings and uses.

Column lists of statements and row codecs are made from this table at import, so rows have the
order of this table, whatever the order in the database (docs/design/architecture.md, "A new field
of a job").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto


class Coding(StrEnum):
    """How a value is stored. Each store has an expression per coding, and its own types."""

    BIGINT = "bigint"
    INTEGER = "integer"
    SMALLINT = "smallint"
    TEXT = "text"
    BYTES = "bytes"
    UUID = "uuid"
    BOOLEAN = "boolean"
    TEXTS = "texts"  # a tuple of strings; NULL if empty
    STATE = "state"
    TRIGGER = "trigger"
    ON_PARENT = "on_parent"
    SECONDS = "seconds"  # in microseconds
    HEADERS = "headers"  # JSON; NULL if empty
    POLICY = "policy"  # JSON; NULL for the default policy
    FAILURE = "failure"  # JSON; its body is in `error_body`


class Use(Flag):
    """Which statements write a column."""

    REQUEST = auto()  # an enqueue stores the value of the request
    OPTIONAL = auto()  # the same; NULL unless the request sets it
    SAVED = auto()  # decisions change it


NO_USE = Use(0)  # other statements write it


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `windlass_job`.

    `field` is the field of `JobRow`, and `request` that of `NewJob`, if their names differ.
    """

    name: str
    coding: Coding
    use: Use = NO_USE
    field: str = ""
    request: str = ""

    @property
    def row_field(self) -> str:
        return self.field or self.name

    @property
    def request_field(self) -> str:
        return self.request or self.name


# The columns that decisions read. The first are the fields of core's `LifecycleRow`.
LIFECYCLE_COLUMNS = (
    Column("id", Coding.UUID, Use.REQUEST),
    Column("queue", Coding.TEXT, Use.REQUEST),
    Column("task", Coding.TEXT, Use.REQUEST),
    Column("created_at", Coding.BIGINT),
    Column("expires_at", Coding.BIGINT),
    Column("state", Coding.STATE, Use.SAVED),
    Column("trigger", Coding.TRIGGER, Use.SAVED),
    Column("held", Coding.BOOLEAN, Use.REQUEST | Use.SAVED, request="hold"),
    Column("waiting_for", Coding.BIGINT, Use.SAVED),
    Column("position", Coding.BIGINT, Use.SAVED),
    Column("due_at", Coding.BIGINT, Use.SAVED),
    Column("attempt", Coding.BIGINT),
    Column("fence", Coding.BIGINT),
    Column("token", Coding.UUID),
    Column("worker", Coding.TEXT),
    Column("lease_until", Coding.BIGINT, Use.SAVED),
    Column("queued_at", Coding.BIGINT, Use.SAVED),
    Column("started_at", Coding.BIGINT, Use.SAVED),
    Column("first_started_at", Coding.BIGINT),
    Column("ended_at", Coding.BIGINT, Use.SAVED),
    Column("updated_at", Coding.BIGINT, Use.SAVED),
    Column("seq", Coding.BIGINT, Use.SAVED),
    Column("queued_seq", Coding.BIGINT, Use.SAVED),
    Column("started_seq", Coding.BIGINT, Use.SAVED),
    Column("last_record", Coding.BIGINT, Use.SAVED),
    Column("percent", Coding.SMALLINT, Use.SAVED),
    Column("stage", Coding.TEXT, Use.SAVED),
    Column("phase", Coding.TEXT, Use.SAVED),
    Column("base_percent", Coding.SMALLINT, Use.SAVED),
    Column("base_stage", Coding.TEXT, Use.SAVED),
    Column("base_phase", Coding.TEXT, Use.SAVED),
    Column("retry_count", Coding.BIGINT, Use.SAVED),
    Column("crash_count", Coding.BIGINT, Use.SAVED),
    Column("cancel_at", Coding.BIGINT, Use.SAVED),
    Column("cancel_by", Coding.TEXT, Use.SAVED),
    Column("cancel_reason", Coding.TEXT, Use.SAVED),
    Column("error", Coding.FAILURE, Use.SAVED),
    Column("error_body", Coding.BYTES, Use.SAVED, field="error"),
    Column("result", Coding.BYTES, Use.SAVED),
    Column("last_step", Coding.TEXT, Use.SAVED),
    Column("on_parent", Coding.ON_PARENT, Use.REQUEST),
    Column("awaited", Coding.BOOLEAN),
    Column("signals", Coding.BIGINT, Use.SAVED),
    Column("gates", Coding.TEXTS),
    Column("gate", Coding.TEXT, Use.SAVED),
    # Not fields of `LifecycleRow`; stores read them to write a decision.
    Column("n", Coding.BIGINT, field="serial"),
    Column("priority", Coding.INTEGER, Use.REQUEST),
    Column("owner", Coding.TEXT, Use.REQUEST),
    Column("unique_key", Coding.TEXT, Use.OPTIONAL),
    Column("limit_key", Coding.TEXT, Use.OPTIONAL),
    Column("logged", Coding.BOOLEAN),  # whether it has log rows; no field of `JobRow`
)

JOB_COLUMNS = (
    *LIFECYCLE_COLUMNS,
    Column("payload", Coding.BYTES, Use.REQUEST),
    Column("policy", Coding.POLICY, Use.OPTIONAL),
    Column("lease", Coding.SECONDS, Use.OPTIONAL, field="lease_seconds"),
    Column("team", Coding.TEXT, Use.OPTIONAL),
    Column("tags", Coding.TEXTS, Use.OPTIONAL),
    Column("headers", Coding.HEADERS, Use.OPTIONAL),
    Column("request_id", Coding.TEXT, Use.OPTIONAL),
    Column("digest", Coding.BYTES, Use.OPTIONAL),
    Column("retry_of", Coding.UUID, Use.OPTIONAL),
    Column("retried_as", Coding.UUID),
    Column("root_id", Coding.UUID),
    Column("log_floor", Coding.BIGINT),
    Column("flow_id", Coding.UUID, Use.OPTIONAL),
)

OPTIONAL_COLUMNS = tuple(column for column in JOB_COLUMNS if Use.OPTIONAL in column.use)
REQUEST_COLUMNS = tuple(
    column for column in JOB_COLUMNS if column.use & (Use.REQUEST | Use.OPTIONAL)
)
SAVED_COLUMNS = tuple(column for column in LIFECYCLE_COLUMNS if Use.SAVED in column.use)
_INDEXES = {column.name: index for index, column in enumerate(JOB_COLUMNS)}


def index_of(name: str) -> int:
    """Return the index of a column in a row, both of all columns and of those of decisions."""
    return _INDEXES[name]


def names(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def column_list(
    columns: Sequence[Column], table: str = "", *, instead: Mapping[str, str] | None = None
) -> str:
    """Return the column list of a statement; `instead` has expressions that replace columns."""
    prefix = f"{table}." if table else ""
    replaced = instead or {}
    return ", ".join(replaced.get(name, prefix + name) for name in names(columns))
