"""Bugs in limits and fairness."""

from __future__ import annotations

from tests.planted_bugs.bug import caught_by, swap
from tests.planted_bugs.bugs import postgres
from tests.planted_bugs.bugs.sqlite import replace_sql

from windlass.core.admission import queue_position
from windlass.core.job.state import FINAL
from windlass.stores.postgres.writes import batch
from windlass.stores.sqlite.writes.permits import PermitWriter

LIMITS = "tests/stores/test_sqlite.py::TestConcurrency::"
RATES = "tests/stores/test_sqlite.py::TestRates::"
FAIRNESS = "tests/stores/test_sqlite.py::TestFairness::"
PERMITS = "tests/stores/postgres/limits/test_permits.py::"


@caught_by(RATES + "test_an_admitted_job_that_has_not_started_counts")
def admitted_jobs_are_not_counted() -> None:
    """Only running jobs count: without workers, all jobs are admitted and then start at once."""
    replace_sql("count_permits", "started_at <= ?2", "(started_at <= ?2 OR started_at IS NULL)")


@caught_by(LIMITS + "test_a_canceled_queued_job_admits_the_next")
def a_canceled_queued_job_keeps_its_permit() -> None:
    """A job that is canceled before its start never releases its permit."""
    replace_sql("delete_permits", "job.state = 'queued'", "job.state IN ('queued', 'canceled')")


@caught_by(RATES + "test_a_start_counts_after_its_job_ends_or_starts_again")
def a_rate_forgets_ended_jobs() -> None:
    """A rate counts only running jobs: short jobs may start without a limit."""
    end, release = PermitWriter.end, PermitWriter.release
    swap(PermitWriter, "end", lambda writer, jobs, slots, rated: end(writer, jobs, slots, set()))
    swap(PermitWriter, "release", lambda writer, jobs, rated: release(writer, jobs, set()))


@caught_by(LIMITS + "test_outcomes_settled_in_one_call_admit_as_many_jobs")
def a_fast_path_success_admits_no_job() -> None:
    """The fast path of a success checks no gate: capacity is free, and all jobs still wait."""
    replace_sql("success_totals", "json_group_array(gates)", "json_group_array('[]')")


@caught_by(FAIRNESS + "test_a_new_key_does_not_wait_for_the_backlog_of_another")
def first_come_first_served() -> None:
    """Jobs run in arrival order: a backlog of thousands blocks all other keys."""
    swap(queue_position, "fair_position", lambda key, arrival, first, last: arrival)


# -- counters of gates on PostgreSQL


@caught_by(PERMITS + "test_a_gate_with_a_wrong_count_recovers_within_a_second")
def a_counter_is_never_checked() -> None:
    """A counter of permits is never compared with the jobs: once wrong, it stays wrong."""
    postgres.replace_in_migrations(
        "recounted_at <= windlass_open_gates.now - 1000000", "recounted_at = 0"
    )


@caught_by(PERMITS + "test_each_release_of_a_slot_is_counted_once")
def every_end_lowers_the_counter() -> None:
    """Each end lowers the counter, even that of a job without a permit."""
    swap(batch, "gates_in_use", lambda row: () if row.state in FINAL else row.gates)


@caught_by(PERMITS + "test_a_start_is_counted_once")
def a_start_is_counted_at_each_check() -> None:
    """Recorded starts are never marked as read: each check counts the same starts again."""
    postgres.replace_in_migrations(
        "SET counted = true FROM rate_limited", "SET counted = false FROM rate_limited"
    )


@caught_by(PERMITS + "test_jobs_that_left_are_removed_from_permits_within_a_second")
def permits_are_never_deleted() -> None:
    """Permits of ended jobs stay forever: each check reads more rows."""
    postgres.replace_in_migrations(
        "SELECT ctid_ FROM permits WHERE held < cardinality(jobs)", "SELECT NULL::tid"
    )


@caught_by(PERMITS + "test_a_claim_records_the_start")
def a_claim_records_no_start() -> None:
    """A claim does not record starts: a later check must find each of them."""
    postgres.replace_sql("claim", "AND gate.rate_limited LIMIT 1", "AND false LIMIT 1")
