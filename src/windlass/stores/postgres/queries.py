"""The statements of `queries.sql`, as attributes."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.stores.sql import query_file


@dataclass(frozen=True, slots=True)
class Queries:
    insert_jobs: str
    insert_alike: str
    insert_keys: str
    taken_keys: str
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
    dead_in_line: str
    heads: str
    extend: str
    held_leases: str
    succeed: str
    standings: str
    lock_soon: str
    wait_as_usual: str
    lock_jobs: str
    present: str
    save: str
    count_down: str
    leave_waiting: str
    leave_line: str
    leave_gate: str
    turns: str
    admit: str
    lock_gates: str
    look_again: str
    idle_gates: str
    drop_gates: str
    drop_line: str
    list_ended: str
    insert_log: str
    past_outcomes: str
    put_steps: str
    get_steps: str
    add_rollups: str
    rollups: str
    gates: str
    due: str
    expired: str
    lock_upkeep: str
    past_keeping: str
    unlist: str
    drop_unlisted: str
    lock_ended: str
    forget_logs: str
    delete_jobs: str
    delete_old_rollups: str
    events: str
    attempts: str
    stretch: str
    stretch_of_trouble: str
    stretch_of_lineage: str
    matching: str
    failures: str
    numbered: str
    numbered_bare: str
    stats: str
    get_records: str
    put_records: str
    may_put: str
    declare: str
    list_records: str
    delete_records: str
    delete_dead_records: str
    notify: str
    known_steps: str
    below: str
    dependents: str
    tell_dependents: str
    wait_no_more: str
    put_edges: str
    next_place: str
    mark_awaited: str
    edges: str
    flows: str
    flows_before: str
    newest_of_flows: str
    stretch_of_flow: str


SQL = query_file.load("windlass.stores.postgres", Queries)
