"""Statements of `queries.sql`, as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.core.job.dependency import OnParent
from windlass.stores.postgres import rows
from windlass.stores.sql import query_file
from windlass.stores.sql.job_columns import (
    JOB_COLUMNS,
    LIFECYCLE_COLUMNS,
    OPTIONAL_COLUMNS,
    REQUEST_COLUMNS,
    SAVED_COLUMNS,
    Coding,
    Column,
    column_list,
    names,
)


@dataclass(frozen=True, slots=True)
class PostgresQueries:
    insert_jobs: str
    insert_uniform: str
    insert_keys: str
    unavailable_keys: str
    lock_records: str
    now: str
    get_jobs: str
    jobs_by_request: str
    active_by_key: str
    active_of_lineage: str
    set_retried_as: str
    copy_steps: str
    claim: str
    claimable: str
    dead_queued_rows: str
    first_positions: str
    extend: str
    locked_leases: str
    succeed: str
    lock_lifecycles: str
    lock_jobs_briefly: str
    reset_lock_timeout: str
    lock_jobs: str
    existing_ids: str
    save_jobs: str
    count_down_leases: str
    delete_waiting: str
    delete_queued: str
    delete_from_gate_queue: str
    position_bounds: str
    admit: str
    lock_gates: str
    request_gate_checks: str
    gates_to_clean: str
    delete_idle_gates: str
    delete_stale_queued: str
    insert_ended: str
    insert_log: str
    past_outcomes: str
    put_steps: str
    get_steps: str
    add_rollups: str
    rollups: str
    gates: str
    due: str
    try_lock_prune: str
    past_retention: str
    remove_from_ended: str
    delete_empty_ended: str
    lock_finished: str
    delete_logs: str
    delete_jobs: str
    delete_old_rollups: str
    events: str
    attempts: str
    search_range: str
    unsuccessful_range: str
    lineage_range: str
    matching: str
    failures: str
    jobs_by_serial: str
    jobs_by_serial_without_payload: str
    stats: str
    get_records: str
    put_records: str
    may_write_records: str
    declare_limits: str
    list_records: str
    delete_records: str
    delete_expired_records: str
    notify: str
    existing_steps: str
    descendants: str
    dependents: str
    close_edges_of_parents: str
    close_edges_of_children: str
    put_edges: str
    next_edge_ordinal: str
    mark_awaited: str
    edges: str
    flows: str
    flows_before: str
    newest_of_flows: str
    flow_range: str


# Columns that `claim` returns of a job without history. A request that sets another one has a full
# row.
_CLAIMED = {"limit_key"}
_TYPES = {
    Coding.BIGINT: "bigint", Coding.INTEGER: "integer", Coding.SMALLINT: "smallint",
    Coding.SECONDS: "bigint", Coding.BYTES: "bytea", Coding.UUID: "uuid",
    Coding.BOOLEAN: "boolean",
}  # fmt: skip


def _types(columns: Sequence[Column]) -> dict[str, str]:
    return {column.name: _TYPES.get(column.coding, "text") for column in columns}


def _arrays(types: Mapping[str, str], first: int) -> dict[str, str]:
    """Return array parameters, numbered from `first`, by name."""
    return {
        name: f"${number}::{type_}[]" for number, (name, type_) in enumerate(types.items(), first)
    }


def _new_value(column: Column) -> str:
    """Return the expression of a column of a new job in `insert_jobs`."""
    name = column.name
    if name in rows.SHARED:
        return f"coalesce(given.{name}, ({_INSERT_ARRAYS[name]})[1]) AS {name}"
    if column.coding is Coding.TEXTS:
        return f"given.{name}::text[] AS {name}"
    if column.coding is Coding.ON_PARENT:
        return f"coalesce(given.{name}, '{OnParent.CANCEL}') AS {name}"
    return f"given.{name}"


_INSERT_ARRAYS = _arrays({**_types(REQUEST_COLUMNS), **rows.INSERT_EXTRAS}, 3)
_SAVE_ARRAYS = _arrays({**_types(SAVED_COLUMNS), **rows.SAVE_EXTRAS}, 1)
PLACEHOLDERS = {
    "columns": column_list(JOB_COLUMNS),
    "job.columns": column_list(JOB_COLUMNS, "job"),
    "columns_without_payload": column_list(
        JOB_COLUMNS, instead={"payload": "''::bytea", "result": "NULL::bytea"}
    ),
    "lifecycle_columns": column_list(LIFECYCLE_COLUMNS, instead={"result": "NULL::bytea"}),
    "request_columns": column_list(REQUEST_COLUMNS),
    "insert_arrays": ", ".join(_INSERT_ARRAYS.values()),
    "insert_names": ", ".join(_INSERT_ARRAYS),
    **{f"{name}[]": array for name, array in _INSERT_ARRAYS.items()},
    "new_values": ", ".join(map(_new_value, REQUEST_COLUMNS)),
    "uniform_columns": ", ".join(rows.UNIFORM),
    "uniform_values": ", ".join(f"${number}" for number, _ in enumerate(rows.UNIFORM, 4)),
    "unclaimed_columns": column_list(
        [column for column in OPTIONAL_COLUMNS if column.name not in _CLAIMED], "job"
    ),
    "save_arrays": ", ".join(_SAVE_ARRAYS.values()),
    "save_names": ", ".join(_SAVE_ARRAYS),
    "assignments": ", ".join(
        f"{name} = new.{name}" for name in names(SAVED_COLUMNS) if name != "position"
    ),
}

SQL = query_file.load("windlass.stores.postgres", PostgresQueries, placeholders=PLACEHOLDERS)
