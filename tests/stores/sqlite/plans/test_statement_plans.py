"""Query plans: each query on the hot path uses its index."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass.stores.sqlite import connection, migrator
from windlass.stores.sqlite.config import SqliteConfig
from windlass.stores.sqlite.queries import SQL

SORT = "TEMP B-TREE"
JOB = b"j" * 16
CLAIM = {
    "token": JOB, "worker": "w", "now": 1, "lease": None, "default_lease": 1,
    "queue": "default", "limit": 10,
}  # fmt: skip


@pytest.fixture(params=["a new file", "a file with statistics"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[apsw.Connection]:
    """A plan must not depend on the statistics of ANALYZE."""
    opened = connection.connect(SqliteConfig(path=str(tmp_path / "jobs.db"), durability="off"))
    migrator.migrate(opened, "here", 0)
    if request.param == "a file with statistics":
        fill(opened)
        opened.execute("ANALYZE")
    yield opened
    opened.close()


def fill(opened: apsw.Connection) -> None:
    """Insert mostly finished jobs of one queue, like in an old file."""
    opened.execute(
        """
        WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 2000)
        INSERT INTO windlass_job (
            n, id, queue, task, priority, owner, created_at, state, trigger, position, due_at,
            token, lease_until, ended_at, updated_at, seq, logged
        )
        SELECT
            n, randomblob(16), 'default', 'task', 0, '', n,
            CASE n % 100 WHEN 0 THEN 'queued' WHEN 1 THEN 'running' WHEN 2 THEN 'retrying'
                WHEN 3 THEN 'failed' ELSE 'succeeded' END,
            'enqueue', n, n, randomblob(16), n, iif(n % 100 > 2, n, NULL), n, 1, 1
        FROM number
        """
    )
    opened.execute(
        "INSERT INTO windlass_log SELECT n, 1, 0, 'log', 1, 1, 1, NULL, NULL "
        "FROM windlass_job WHERE n % 3 = 0"
    )


def plan(
    opened: apsw.Connection, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> list[str]:
    rows = opened.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    return [str(row[3]) for row in rows]


def searches(steps: list[str], table: str = "windlass_job") -> list[str]:
    """Return the steps that read the table."""
    touching = (f"SEARCH {table}", f"SCAN {table}")
    return [step for step in steps if step.startswith(touching)]


def test_a_claim_reads_the_queue_in_order_without_sorting(file: apsw.Connection) -> None:
    steps = plan(file, SQL.claim, CLAIM)
    assert "SEARCH windlass_job USING INDEX windlass_job_queued (queue=?)" in steps
    assert "SEARCH windlass_job USING INTEGER PRIMARY KEY (rowid=?)" in steps
    assert len(searches(steps)) == 2
    assert not any("ORDER BY" in step for step in steps)


def test_a_repeated_claim_is_found_by_its_token(file: apsw.Connection) -> None:
    assert plan(file, SQL.jobs_by_token, (JOB,)) == [
        "SEARCH windlass_job USING INDEX windlass_job_running (token=?)"
    ]


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        (SQL.get_job, (JOB,)),
        (SQL.get_lifecycle, (JOB,)),
        (SQL.extend, (1, JOB, 1, JOB)),
    ],
    ids=["get_job", "get_lifecycle", "extend"],
)
def test_one_job_is_found_by_its_id(file: apsw.Connection, sql: str, parameters: Any) -> None:
    assert plan(file, sql, parameters) == ["SEARCH windlass_job USING INDEX windlass_job_id (id=?)"]


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        (SQL.get_lifecycles, (apsw.carray((JOB, JOB)),)),
        (SQL.success_totals, (apsw.carray((JOB, JOB)),)),
        (SQL.succeed, (1, None, apsw.carray((JOB, JOB)), 1, JOB)),
    ],
    ids=["get_lifecycles", "success_totals", "succeed"],
)
def test_a_batch_is_found_by_ids(file: apsw.Connection, sql: str, parameters: Any) -> None:
    steps = plan(file, sql, parameters)
    assert searches(steps) == ["SEARCH windlass_job USING INDEX windlass_job_id (id=?)"]


@pytest.mark.parametrize(
    "sql", [SQL.save_job, SQL.set_retried_as, SQL.mark_log_deleted, SQL.delete_job, SQL.get_payload]
)
def test_writes_by_job_number_use_the_primary_key(file: apsw.Connection, sql: str) -> None:
    [step] = plan(file, sql, _nothing(sql))
    assert step.endswith("USING INTEGER PRIMARY KEY (rowid=?)")


def test_due_jobs_are_two_ranges_by_their_own_indexes(file: apsw.Connection) -> None:
    steps = plan(file, SQL.due, {"now": 1, "limit": 10})
    found = searches(steps)
    assert any("job_due (" in step and "due_at<?)" in step for step in found)
    assert any("job_expiry (" in step and "expires_at<?)" in step for step in found)
    assert all("job_due" in step or "job_expiry" in step or "PRIMARY KEY" in step for step in found)
    inner = steps[: next(i for i, step in enumerate(steps) if "job_expiry" in step) + 1]
    assert not any(SORT in step for step in inner), "each range is read in order, up to its limit"


def test_expired_leases_are_searched_among_running_jobs_only(file: apsw.Connection) -> None:
    [step] = searches(plan(file, SQL.expired, (1, 10)))
    assert step == "SCAN windlass_job USING INDEX windlass_job_running"


def test_jobs_past_retention_are_a_range_in_order(file: apsw.Connection) -> None:
    assert plan(file, SQL.past_retention, ("succeeded", 1, 10)) == [
        (
            "SEARCH windlass_job USING COVERING INDEX windlass_job_ended "
            "(state=? AND ended_at>? AND ended_at<?)"
        )
    ]


def test_logs_past_retention_are_a_range_in_order(file: apsw.Connection) -> None:
    [step] = plan(file, SQL.logs_past_retention, (1, 10))
    assert "INDEX windlass_job_logged (" in step
    assert "ended_at<?)" in step


def test_a_page_reads_a_range_of_the_primary_key(file: apsw.Connection) -> None:
    assert plan(file, SQL.search_range, (1, 10)) == [
        "SEARCH windlass_job USING INTEGER PRIMARY KEY (rowid<?)"
    ]


def test_a_page_of_unsuccessful_jobs_uses_their_index(file: apsw.Connection) -> None:
    [step] = plan(file, SQL.unsuccessful_range, (1, 10))
    assert "job_unsuccessful" in step
    assert "rowid<?" in step or "n<?" in step


def test_failures_are_read_newest_first(file: apsw.Connection) -> None:
    assert plan(file, SQL.failures, (1, 10)) == [
        "SEARCH windlass_job USING INDEX windlass_job_ended (state=? AND ended_at>?)"
    ]


def test_the_edges_of_a_job_are_read_in_order(file: apsw.Connection) -> None:
    steps = plan(file, SQL.children_of, (b"", 10))
    assert any("INDEX windlass_edge_parent (parent=?)" in step for step in steps)
    assert not any("FOR ORDER BY" in step for step in steps)
    assert any("(child=?)" in step for step in plan(file, SQL.parents_of, (b"", 10)))


def test_flows_are_enumerated_by_index_probes(file: apsw.Connection) -> None:
    [step] = plan(file, SQL.flow_before, (b"",))
    assert "COVERING INDEX windlass_job_flow (flow_id>? AND flow_id<?)" in step
    [step] = plan(file, SQL.flow_exceeds, (b"", 10))
    assert "COVERING INDEX windlass_job_flow (flow_id=?)" in step
    steps = plan(file, SQL.newest_flow_counts, _nothing(SQL.newest_flow_counts))
    assert any("INDEX windlass_job_flow (flow_id=?)" in step for step in steps)
    assert not any("FOR ORDER BY" in step for step in steps)


def test_a_page_filters_only_its_range(file: apsw.Connection) -> None:
    steps = plan(file, SQL.matching, _nothing(SQL.matching))
    assert searches(steps) == ["SEARCH windlass_job USING INTEGER PRIMARY KEY (rowid=?)"]


def test_conflicts_are_found_by_the_unique_indexes(file: apsw.Connection) -> None:
    [step] = plan(file, SQL.job_by_request, ("", "r"))
    assert "job_request (owner=? AND request_id=?)" in step
    [step] = plan(file, SQL.active_by_key, ("", "task", "key"))
    assert "job_unique (owner=? AND task=? AND unique_key=?)" in step


def test_a_log_is_read_by_its_key(file: apsw.Connection) -> None:
    assert plan(file, SQL.log_rows, (1, 1, 10)) == [
        "SEARCH windlass_log USING PRIMARY KEY (n=? AND seq>?)"
    ]
    [step] = plan(file, SQL.attempt_rows, (1, 1, 10))
    assert "INDEX windlass_log_attempt (n=?" in step
    [step] = plan(file, SQL.past_outcome, (1, 1))
    assert "INDEX windlass_log_attempt (n=? AND fence=?)" in step
    for sql in (SQL.delete_log, SQL.delete_steps):
        [step] = plan(file, sql, (1,))
        assert "USING PRIMARY KEY (n=?)" in step


def test_counts_read_indexes_only(file: apsw.Connection) -> None:
    for sql, parameters, index in (
        (SQL.next_queue, ("",), "job_queued (queue>?)"),
        (SQL.count_queued, ("default", 10), "job_queued (queue=?)"),
        (SQL.oldest_queued, ("default", 10), "job_queued (queue=?)"),
        (SQL.count_waiting, ("default", "created", 10), "job_waiting (queue=? AND state=?)"),
        (SQL.next_waiting, ("", ""), "job_waiting"),
    ):
        steps = plan(file, sql, parameters)
        assert index in searches(steps)[0], sql
        assert not any(SORT in step for step in steps), sql


def test_position_bounds_take_two_probes(file: apsw.Connection) -> None:
    for sql, first, last in (
        (
            SQL.queue_position_bounds,
            "job_queued (queue=? AND priority=?)",
            "job_queued_by_key (queue=? ",
        ),
        (SQL.gate_position_bounds, "job_gate (gate=? AND priority=?)", "job_gate_by_key (gate=? "),
    ):
        [one, other] = sorted(searches(plan(file, sql, ("default", 0, apsw.carray(("ada",))))))
        assert first in one
        assert last + "AND priority=? AND limit_key=?)" in other
    for step in searches(
        plan(file, SQL.key_gate_position_bounds, ("key:a", 0, apsw.carray(("ada",))))
    ):
        assert "job_gate (gate=? AND priority=?)" in step


def test_a_statement_is_parsed_once_whatever_is_bound_to_it(file: apsw.Connection) -> None:
    parsed: list[int] = []

    def authorize(operation: int, *_: object) -> int:
        parsed.append(operation)
        return apsw.SQLITE_OK

    file.authorizer = authorize  # called while SQLite parses
    for sql in (SQL.queue_position_bounds, SQL.gate_position_bounds):
        file.execute(sql, ("default", 0, apsw.carray(("ada",)))).fetchall()
        assert parsed
        parsed.clear()
        file.execute(sql, ("other", 1, apsw.carray(("bob",)))).fetchall()
        assert not parsed
    file.authorizer = None


def test_a_gate_is_opened_by_its_index_in_order(file: apsw.Connection) -> None:
    names = apsw.carray(("queue:default",))
    for sql, parameters in (
        (SQL.admissible_jobs, (names, 1, 10)),
        (SQL.next_gate_with_jobs, ("queue:default", "queue:e")),
    ):
        steps = plan(file, sql, parameters)
        found = [step for step in searches(steps) if "INTEGER PRIMARY KEY (rowid=?)" not in step]
        assert len(found) == 1
        assert "job_gate (gate" in found[0]
        assert "USE TEMP B-TREE FOR ORDER BY" not in steps
    assert any("job_gate (gate=?)" in step for step in plan(file, SQL.gates_with_jobs, (names,)))
    heads = plan(file, SQL.due_gate_heads, (1, 10))
    assert any("windlass_gate_next_check (next_check_at<?)" in step for step in heads)
    assert any("job_gate (gate=?)" in step for step in heads)


def test_counting_permits_reads_only_old_starts(file: apsw.Connection) -> None:
    names = apsw.carray(("queue:default",))
    steps = plan(file, SQL.count_permits, (names, 1))
    assert "SEARCH gate USING PRIMARY KEY (gate=?) LEFT-JOIN" in steps
    assert any("job_gate (gate=?)" in step for step in searches(steps))
    for sql, parameters, bound in (
        (SQL.count_permits, (names, 1), "started_at<?"),
        (SQL.delete_old_starts, ("queue:default", 1), "started_at<?"),
        (SQL.limiting_start, ("queue:default", 1, 1, 1, 0), "started_at>?"),
    ):
        steps = plan(file, sql, parameters)
        found = searches(steps, "windlass_permit")
        assert found
        assert all(f"windlass_permit_start (gate=? AND {bound})" in step for step in found)
        assert not any("ORDER BY" in step for step in steps)


def test_permits_are_found_by_job_number_and_recounted_in_one_scan(
    file: apsw.Connection,
) -> None:
    numbers = apsw.carray(array("q", [1]))
    for sql, parameters in (
        (SQL.permit_counts, (numbers,)),
        (SQL.delete_permits_of_ended, (numbers, "[]")),
        (SQL.release_slots, (numbers, "[]")),
        (SQL.record_starts, (numbers, 1, 1)),
    ):
        [step] = searches(plan(file, sql, parameters), "windlass_permit")
        assert "PRIMARY KEY (n=?" in step
    steps = plan(file, SQL.recount_gates, (apsw.carray(("queue:default",)),))
    assert [step for step in steps if "windlass_permit" in step] == ["SCAN windlass_permit"]


def test_jobs_that_leave_a_gate_are_found_by_number(file: apsw.Connection) -> None:
    numbers = apsw.carray(array("q", [1]))
    found = "PRIMARY KEY (n=?)"
    for sql, parameters, probes in (
        (SQL.update_permits, (numbers,), [(found, "permit")]),
        (SQL.delete_permits, (numbers, "[]"), [(found, "windlass_permit")]),
        (SQL.grant_permits, (1, numbers), []),
        (SQL.admit_to_queue, (1, '{"1": 1}'), []),
        (SQL.admit_to_gate, ("queue:default", '{"1": 1}'), []),
    ):
        steps = plan(file, sql, parameters)
        jobs = searches(steps, "job") + searches(steps)
        assert jobs
        assert all("USING INTEGER PRIMARY KEY (rowid=?)" in step for step in jobs), steps
        for how, table in probes:
            assert all(how in step for step in searches(steps, table)), steps
            assert searches(steps, table)


def test_records_are_found_by_key(file: apsw.Connection) -> None:
    [step] = plan(file, SQL.get_record, ("kind", "key"))
    assert "PRIMARY KEY (kind=? AND key=?)" in step
    [step] = plan(file, SQL.list_records, ("kind", "", 0, 10))
    assert "PRIMARY KEY (kind=? AND key>?)" in step
    [step] = plan(file, SQL.limit_names, ("limit", 1))
    assert "PRIMARY KEY (kind=?)" in step
    [step] = plan(file, SQL.delete_expired_records, (1,))
    assert "record_expiry (" in step
    assert "expires_at<?)" in step


def test_nothing_on_the_hot_path_scans_the_jobs(file: apsw.Connection) -> None:
    for name in SQL.__slots__:
        sql = getattr(SQL, name)
        steps = plan(file, sql, _nothing(sql))
        scans = [
            step for step in steps if step.startswith("SCAN windlass_job") and "USING" not in step
        ]
        assert scans == [], name


def _nothing(sql: str) -> Any:
    """Return a null for every parameter, in any placeholder style."""
    if named := re.findall(r":(\w+)", sql):
        return dict.fromkeys(named)
    if numbered := re.findall(r"\?(\d+)", sql):
        return (None,) * max(map(int, numbered))
    return (None,) * sql.count("?")
