"""Statements of `queries.sql`, as attributes."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.stores.sql import query_file


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


SQL = query_file.load("windlass.stores.postgres", PostgresQueries)
