"""Mistakes with limits and turns."""

from __future__ import annotations

from tests.teeth.mistake import caught_by, swap
from tests.teeth.sql import spoil

from windlass.core import gate

LIMITING = "tests/stores/test_sqlite.py::TestLimiting::"
TURNS = "tests/stores/test_sqlite.py::TestTurns::"


@caught_by(LIMITING + "test_what_was_let_in_and_has_not_started_counts")
def what_stands_in_line_is_not_counted() -> None:
    """Only what runs counts: while nobody works, all are let in, and then start at once."""
    spoil("count_passes", "sum(started_at IS NULL OR (", "sum((")


@caught_by(LIMITING + "test_a_job_in_line_that_is_canceled_lets_the_next_one_in")
def a_cancel_in_line_keeps_the_slot() -> None:
    """A job that is canceled before it started never gives its slot back."""
    spoil("leave", "job.state = 'queued'", "job.state IN ('queued', 'canceled')")


@caught_by(LIMITING + "test_a_start_counts_though_its_job_has_ended_or_starts_again")
def a_rate_forgets_what_has_ended() -> None:
    """Starts are counted among what still runs: short jobs may start as often as they like."""
    spoil("leave", "started_at IS NULL OR", "started_at IS NULL OR held = 0 OR")


@caught_by(LIMITING + "test_ends_in_one_call_let_in_as_many")
def a_quick_success_lets_nobody_in() -> None:
    """A success by the shortest way looks at no gate: slots are free, and all wait on."""
    spoil("tallies", "SELECT gates,", "SELECT NULL,")


@caught_by(TURNS + "test_a_key_that_comes_later_does_not_wait_for_the_backlog_of_another")
def first_come_first_served() -> None:
    """Jobs go in the order of their arrival: whoever brings a thousand keeps all others waiting."""
    swap(gate, "place", lambda key, arrival, first, last: arrival)
