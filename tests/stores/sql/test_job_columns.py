"""The table of columns agrees with the fields of the core and with both databases."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import get_type_hints
from uuid import UUID

import apsw
import pytest
from tests.stores.postgres.server import execute

from windlass.core.decisions.transition import Changes
from windlass.core.ids import uuid7
from windlass.core.job.dependency import OnParent
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.job.row import JobRow, LifecycleRow, new_row
from windlass.stores.postgres import queries as postgres_queries
from windlass.stores.sql import query_file
from windlass.stores.sql.job_columns import (
    JOB_COLUMNS,
    LIFECYCLE_COLUMNS,
    OPTIONAL_COLUMNS,
    REQUEST_COLUMNS,
    SAVED_COLUMNS,
    Coding,
    column_list,
    index_of,
    names,
)
from windlass.stores.sqlite import migrator, rows
from windlass.stores.sqlite.queries import SQL

# Fields of a request that set other columns, or other tables.
DERIVED = {"delay", "run_at", "expires_in", "expires_at", "debounce", "resume", "depends_on"}
PLAIN = NewJob(id=UUID(int=0), task="")
LIFECYCLE = [item.name for item in fields(LifecycleRow)]
CLAIM_ONLY = {"attempt", "fence", "token", "worker", "first_started_at"}
SQLITE_TYPES = {
    **dict.fromkeys((Coding.BIGINT, Coding.INTEGER, Coding.SMALLINT, Coding.SECONDS), "INTEGER"),
    **dict.fromkeys((Coding.BYTES, Coding.UUID), "BLOB"),
    Coding.BOOLEAN: "INTEGER",
}


def test_the_columns_are_those_of_the_sqlite_table() -> None:
    memory = apsw.Connection(":memory:")
    migrator.migrate(memory, "memory", 0)
    table = memory.execute("SELECT name, type FROM pragma_table_info('windlass_job')").fetchall()
    expected = [(column.name, SQLITE_TYPES.get(column.coding, "TEXT")) for column in JOB_COLUMNS]
    assert sorted(table) == sorted(expected)


async def test_the_columns_are_those_of_the_postgresql_table(postgres_url: str) -> None:
    table = await execute(
        postgres_url,
        "SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute "
        "WHERE attrelid = 'windlass_job'::regclass AND attnum > 0 AND NOT attisdropped",
    )
    types = postgres_queries._types(JOB_COLUMNS)
    texts = {column.name: "text[]" for column in JOB_COLUMNS if column.coding is Coding.TEXTS}
    assert {row["name"]: row["type"] for row in table} == types | texts


def test_every_field_of_a_row_has_a_column() -> None:
    fields_of = [column.row_field for column in JOB_COLUMNS if column.name != "logged"]
    assert len(set(names(JOB_COLUMNS))) == len(JOB_COLUMNS)
    assert set(fields_of) == {item.name for item in fields(JobRow)}
    assert list(dict.fromkeys(fields_of))[: len(LIFECYCLE)] == LIFECYCLE


def test_every_field_of_a_request_is_stored() -> None:
    stored = {column.request_field for column in REQUEST_COLUMNS}
    assert stored | DERIVED == {item.name for item in fields(NewJob)}
    assert not stored & DERIVED


def test_optional_columns_are_null_unless_the_request_sets_them() -> None:
    plain = rows.insertion(NewJob(id=uuid7(), task="t"), 1, 1)
    values = dict(zip(names(REQUEST_COLUMNS), plain, strict=False))
    assert {name for name, value in values.items() if value is None} == set(names(OPTIONAL_COLUMNS))


def test_decisions_change_only_saved_columns() -> None:
    assert {column.row_field for column in SAVED_COLUMNS} == set(
        get_type_hints(Changes)
    ) - CLAIM_ONLY


def test_rows_of_decisions_are_the_start_of_whole_rows() -> None:
    assert JOB_COLUMNS[: len(LIFECYCLE_COLUMNS)] == LIFECYCLE_COLUMNS
    assert index_of("n") < len(LIFECYCLE_COLUMNS)


def test_a_new_job_is_stored_with_all_its_fields() -> None:
    new = NewJob(
        id=uuid7(), task="t", queue="q", payload=b"[]", priority=3, hold=True,
        policy=Policy(max_retries=9), lease=1.5, owner="o", team="t", tags=("a", "b"),
        headers={"k": "v"}, request_id="r", digest=b"d" * 32, unique_key="u", retry_of=uuid7(),
        on_parent=OnParent.RUN, flow_id=uuid7(), limit_key="l", delay=5.0, expires_in=60.0,
    )  # fmt: skip
    unset = {
        item.name
        for item in fields(NewJob)
        if item.name not in DERIVED and getattr(new, item.name) == getattr(PLAIN, item.name)
    }
    assert not unset, "set these fields above"
    memory = apsw.Connection(":memory:")
    migrator.migrate(memory, "memory", 0)
    root = uuid7()
    memory.execute(SQL.insert_job, rows.insertion(new, 1_000, 7, root_id=root, gates=("queue:q",)))
    [stored] = memory.execute(SQL.get_job, (new.id.bytes,)).fetchall()
    assert rows.job_row(stored) == new_row(new, 1_000, 7, root, gates=("queue:q",))
    [lifecycle] = memory.execute(SQL.get_lifecycle, (new.id.bytes,)).fetchall()
    decoded = attrgetter(*LIFECYCLE)(rows.lifecycle_row(lifecycle, new.id))
    assert decoded == attrgetter(*LIFECYCLE)(rows.job_row(stored))


def test_a_column_list_can_name_its_table_and_replace_columns() -> None:
    columns = LIFECYCLE_COLUMNS[:3]
    assert column_list(columns) == "id, queue, task"
    assert column_list(columns, "job", instead={"queue": "NULL"}) == "job.id, NULL, job.task"


@dataclass(frozen=True, slots=True)
class TwoQueries:
    one: str
    two: str


def test_placeholders_are_replaced_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "-- name: one\nSELECT {columns}, '{}'\n-- name: two\nSELECT {queue[]}\n"
    monkeypatch.setattr(query_file, "files", lambda _: FakePackage(text))
    loaded = query_file.load("p", TwoQueries, placeholders={"columns": "a, b", "queue[]": "$1"})
    assert loaded == TwoQueries("SELECT a, b, '{}'", "SELECT $1")
    with pytest.raises(ValueError, match=r"unknown placeholders: \['queue\[\]'\]"):
        query_file.load("p", TwoQueries, placeholders={"columns": "a, b"})


class FakePackage:
    def __init__(self, text: str) -> None:
        self._text = text

    def joinpath(self, _: str) -> FakePackage:
        return self

    def read_text(self, _: str) -> str:
        return self._text
