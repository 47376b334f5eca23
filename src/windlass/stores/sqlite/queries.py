"""Statements of `queries.sql`, as attributes."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.stores.sql import query_file
from windlass.stores.sql.job_columns import (
    JOB_COLUMNS,
    LIFECYCLE_COLUMNS,
    REQUEST_COLUMNS,
    SAVED_COLUMNS,
    column_list,
    index_of,
)
from windlass.stores.sqlite.rows import LOGGED, N


@dataclass(frozen=True, slots=True)
class SqliteQueries:
    insert_job: str
    insert_payload: str
    get_payload: str
    last_serial: str
    set_serial: str
    get_job: str
    existing_ids: str
    jobs_by_serial: str
    jobs_by_serial_without_payload: str
    job_by_request: str
    active_by_key: str
    active_of_lineage: str
    set_retried_as: str
    copy_steps: str
    jobs_by_token: str
    claim: str
    extend: str
    get_lifecycle: str
    get_lifecycles: str
    succeed: str
    success_totals: str
    save_job: str
    insert_log: str
    past_outcome: str
    put_step: str
    get_steps: str
    add_rollup: str
    rollups: str
    delete_old_rollups: str
    due: str
    expired: str
    past_retention: str
    logs_past_retention: str
    mark_log_deleted: str
    delete_log: str
    delete_steps: str
    delete_payload: str
    delete_job: str
    log_rows: str
    attempt_rows: str
    search_range: str
    unsuccessful_range: str
    lineage_range: str
    matching: str
    failures: str
    next_queue: str
    count_queued: str
    oldest_queued: str
    next_waiting: str
    count_waiting: str
    count_running: str
    get_record: str
    is_paused: str
    put_record: str
    list_records: str
    delete_record: str
    delete_expired_records: str
    limit_names: str
    rate_limit_names: str
    queue_position_bounds: str
    gate_position_bounds: str
    key_gate_position_bounds: str
    update_permits: str
    record_starts: str
    jobs_with_permit: str
    gates_of_limit: str
    release_slots: str
    delete_permits: str
    delete_permits_of_ended: str
    delete_old_starts: str
    count_permits: str
    limiting_start: str
    grant_permits: str
    regrant_permits: str
    add_permit_counts: str
    permit_counts: str
    recount_gates: str
    miscounted_gates: str
    delete_idle_gates: str
    delete_idle_permits: str
    admit_to_queue: str
    admit_to_gate: str
    count_at_gate: str
    gate_holders: str
    get_gates: str
    admissible_jobs: str
    get_ids: str
    gates_with_jobs: str
    next_gate_with_jobs: str
    set_next_check: str
    clear_next_check: str
    due_gate_heads: str
    get_parents: str
    next_edge_ordinal: str
    put_edge: str
    mark_awaited: str
    open_dependents: str
    close_edges_of_parent: str
    close_edges_of_child: str
    parents_of: str
    children_of: str
    flow_counts: str
    flow_before: str
    newest_flow_counts: str
    flow_exceeds: str
    has_step: str
    delete_edges: str
    flow_range: str


PLACEHOLDERS = {
    "columns": column_list(JOB_COLUMNS),
    "job.columns": column_list(JOB_COLUMNS, "job"),
    "columns_without_payload": column_list(
        JOB_COLUMNS, instead={"payload": "x''", "result": "NULL"}
    ),
    "lifecycle_columns": column_list(LIFECYCLE_COLUMNS),
    "request_columns": column_list(REQUEST_COLUMNS),
    "request_values": ", ".join("?" for _ in REQUEST_COLUMNS),
    # The parameters of `save_job` are a row of `get_lifecycle`.
    "assignments": ", ".join(
        f"{column.name} = ?{index_of(column.name) + 1}" for column in SAVED_COLUMNS
    ),
    "logged": f"?{LOGGED + 1}",
    "n": f"?{N + 1}",
}

SQL = query_file.load("windlass.stores.sqlite", SqliteQueries, placeholders=PLACEHOLDERS)
