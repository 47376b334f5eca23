"""Mistakes with limits and turns."""

from __future__ import annotations

from tests.planted_bugs.bug import caught_by, swap
from tests.planted_bugs.bugs import postgres
from tests.planted_bugs.bugs.sql import spoil

from windlass.core.admission import gates
from windlass.core.job.state import FINAL
from windlass.stores.postgres.writes import batch

LIMITING = "tests/stores/test_sqlite.py::TestLimiting::"
RATES = "tests/stores/test_sqlite.py::TestRates::"
TURNS = "tests/stores/test_sqlite.py::TestTurns::"
PASSES = "tests/stores/postgres/limits/test_permits.py::"


@caught_by(RATES + "test_what_was_let_in_and_has_not_started_counts")
def what_stands_in_line_is_not_counted() -> None:
    """Only what runs counts: while nobody works, all are let in, and then start at once."""
    spoil("count_passes", "started_at <= ?2", "(started_at <= ?2 OR started_at IS NULL)")


@caught_by(LIMITING + "test_a_job_in_line_that_is_canceled_lets_the_next_one_in")
def a_cancel_in_line_keeps_the_slot() -> None:
    """A job that is canceled before it started never gives its slot back."""
    spoil("leave", "job.state = 'queued'", "job.state IN ('queued', 'canceled')")


@caught_by(RATES + "test_a_start_counts_though_its_job_has_ended_or_starts_again")
def a_rate_forgets_what_has_ended() -> None:
    """Starts are counted among what still runs: short jobs may start as often as they like."""
    spoil("leave", "started_at IS NULL OR", "started_at IS NULL OR held = 0 OR")


@caught_by(LIMITING + "test_ends_in_one_call_let_in_as_many")
def a_quick_success_lets_nobody_in() -> None:
    """A success by the shortest way looks at no gate: slots are free, and all wait on."""
    spoil("tallies", "json_group_array(gates)", "json_group_array('[]')")


@caught_by(TURNS + "test_a_key_that_comes_later_does_not_wait_for_the_backlog_of_another")
def first_come_first_served() -> None:
    """Jobs go in the order of their arrival: whoever brings a thousand keeps all others waiting."""
    swap(gates, "place", lambda key, arrival, first, last: arrival)


# -- the count that a gate keeps on PostgreSQL


@caught_by(PASSES + "test_a_gate_that_counts_too_many_lets_in_again_within_a_second")
def a_count_is_believed_for_ever() -> None:
    """A counter of slots that nobody compares with the jobs: once wrong, it stays so."""
    postgres.migrated("checked_at <= windlass_open.now - 1000000", "checked_at = 0")


@caught_by(PASSES + "test_each_way_to_leave_is_counted_once")
def whoever_leaves_is_taken_off_unseen() -> None:
    """Each end lowers the counter, also that of a job which never had a slot."""
    swap(batch, "held", lambda row: () if row.state in FINAL else row.gates)


@caught_by(PASSES + "test_a_start_is_counted_once_however_often_it_is_looked_at")
def a_start_is_counted_at_each_look() -> None:
    """What claims noted stays news: each look takes the same ones off those who are to come."""
    postgres.migrated("SET seen = true FROM rated", "SET seen = false FROM rated")


@caught_by(PASSES + "test_who_has_left_is_out_of_the_passes_within_a_second")
def passes_are_never_taken_out() -> None:
    """Rows of those who left stay for ever: each look reads more of them."""
    postgres.migrated("SELECT ctid_ FROM seen WHERE held < cardinality(jobs)", "SELECT NULL::tid")


@caught_by(PASSES + "test_a_claim_notes_the_start")
def a_claim_notes_no_start() -> None:
    """Starts are not noted when they happen: who counts them must find out about each later."""
    postgres.spoil("claim", "AND gate.rated LIMIT 1", "AND false LIMIT 1")
