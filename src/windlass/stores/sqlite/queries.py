"""The statements of `queries.sql`, as attributes."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.stores.sql import query_file


@dataclass(frozen=True, slots=True)
class Queries:
    insert_job: str
    insert_payload: str
    get_payload: str
    last_serial: str
    set_serial: str
    get_job: str
    taken: str
    numbered: str
    numbered_bare: str
    job_by_request: str
    active_by_key: str
    active_of_lineage: str
    set_retried_as: str
    copy_steps: str
    claimed_by: str
    claim: str
    extend: str
    standing: str
    standings: str
    succeed: str
    tallies: str
    save: str
    insert_log: str
    past_attempt: str
    put_step: str
    get_steps: str
    add_rollup: str
    rollups: str
    delete_old_rollups: str
    due: str
    expired: str
    past_keeping: str
    logs_past_keeping: str
    forget_log: str
    delete_log: str
    delete_steps: str
    delete_payload: str
    delete_job: str
    said: str
    past_attempts: str
    stretch: str
    stretch_of_trouble: str
    stretch_of_lineage: str
    matching: str
    failures: str
    next_queue: str
    count_line: str
    oldest_in_line: str
    next_waiting: str
    count_waiting: str
    count_running: str
    get_record: str
    paused: str
    put_record: str
    list_records: str
    delete_record: str
    delete_dead_records: str
    limited: str
    rated: str
    beside_in_line: str
    beside_at_gate: str
    beside_at_key: str
    judge: str
    note_starts: str
    passed_by: str
    gates_of_limit: str
    give_up_slots: str
    leave: str
    leave_for_good: str
    drop_starts: str
    count_passes: str
    next_start: str
    grant_passes: str
    grant_again: str
    add_passes: str
    worth: str
    count_anew: str
    miscounted: str
    forget_idle: str
    drop_idle_passes: str
    enter_line: str
    go_on: str
    waiting_at_gate: str
    holders: str
    gates: str
    able: str
    ids_of: str
    waited_at: str
    next_gate: str
    look_at_gate: str
    look_no_more: str
    heads: str
    parents: str
    owner_of: str
    next_place: str
    put_edge: str
    mark_awaited: str
    dependents: str
    tell_dependents: str
    wait_no_more: str
    parents_of: str
    children_of: str
    flow: str
    flow_before: str
    newest_of_flow: str
    beyond_newest_of_flow: str
    has_step: str
    delete_edges: str
    stretch_of_flow: str


SQL = query_file.load("windlass.stores.sqlite", Queries)
