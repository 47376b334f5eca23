"""Mistakes with jobs that wait for jobs, or for a signal."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tests.planted_bugs.bug import caught_by, swap
from tests.planted_bugs.bugs.sql import spoil

from windlass.core.clock import Instant
from windlass.core.decisions import decide
from windlass.core.decisions.row_change import Change
from windlass.core.decisions.transition import Answer, Decision, PastOutcome, Status, Transition
from windlass.core.ids import uuid7
from windlass.core.job.dependency import Parent
from windlass.core.job.row import JobRow, Standing
from windlass.core.job.state import State, Trigger
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import first
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.batch import Batch
from windlass.worker import context

SQLITE = "tests/stores/test_sqlite.py::"
DEPENDING = SQLITE + "TestDepending::"
SUSPENDING = SQLITE + "TestSuspending::"


# -- parents and children


@caught_by(DEPENDING + "test_a_child_waits_for_its_parent_and_is_in_line_with_its_success")
def a_quick_success_tells_nobody() -> None:
    """A success by the shortest way does not look whether somebody waits for the job."""
    spoil("succeed", "AND awaited = 0", "")


@caught_by(DEPENDING + "test_a_child_waits_for_all_of_its_parents")
def the_last_two_parents_both_miss() -> None:
    """Two parents end at once, each counts what it read before: neither was the last."""

    def planted(self: Batch, job_id: UUID) -> tuple[Row, Standing] | None:
        row = self._found.pop(job_id, None)
        if row is None:
            row = first(self._tx.connection, SQL.standing, (job_id.bytes,))
        return None if row is None else (row, rows.standing(row, job_id))

    swap(Batch, "standing", planted)


@caught_by(DEPENDING + "test_a_child_waits_for_all_of_its_parents")
def the_first_parent_sets_its_child_free() -> None:
    """A child is queued when any of its parents has ended, not when all of them have."""
    true = decide.parent_ended

    def planted(row: Standing, parent: UUID, ended: State, now: Instant) -> Decision:
        return true(replace(row, waiting_for=min(row.waiting_for, 1)), parent, ended, now)

    swap(decide, "parent_ended", planted)


@caught_by(DEPENDING + "test_a_parent_that_is_to_be_retried_is_still_waited_for")
def a_parent_that_is_retried_sets_its_child_free() -> None:
    """Any end of an attempt counts: the child runs while its parent waits to be tried again."""
    write = Batch.write

    def planted(self: Batch, found: Row, row: Standing, made: Decision, now: Instant) -> Answer:
        answer = write(self, found, row, made, now)
        if row.awaited and made.changes.get("state") is State.RETRYING:
            self._ended.append((found[0], row.id, State.SUCCEEDED))
            self.tell_dependents(now)
        return answer

    swap(Batch, "write", planted)


@caught_by(DEPENDING + "test_a_ghost_sets_nobody_free")
def a_ghost_sets_a_child_free() -> None:
    """A success that is refused is told to the child all the same."""
    true = decide.decide

    def planted(row: Standing, wish: Transition, now: Instant, past: PastOutcome) -> Decision:
        made = true(row, wish, now, past)
        if made.answer.status is Status.STALE and wish.trigger is Trigger.SUCCEED:
            return replace(true(row, replace(wish, fence=row.fence, token=row.token), now, past),
                           answer=made.answer)  # fmt: skip
        return made

    swap(decide, "decide", planted)


@caught_by(
    SQLITE + "TestLostParents::" + "test_a_lost_parent_cancels_all_that_depends_on_it[failure]"
)
def a_lost_parent_is_waited_for_forever() -> None:
    """Only success is told on: when a parent has failed, its child stays as it is for ever."""
    true = decide.parent_ended

    def planted(row: Standing, parent: UUID, ended: State, now: Instant) -> Decision:
        if ended is State.SUCCEEDED:
            return true(row, parent, ended, now)
        return Decision(Answer(Status.CONFLICT, row.state))

    swap(decide, "parent_ended", planted)


@caught_by(DEPENDING + "test_a_parent_that_succeeded_before_is_not_waited_for")
def a_parent_that_was_quicker_is_waited_for() -> None:
    """The parent had ended when the child came: the child waits for what has been."""
    swap(Parent, "open", property(lambda _: True))


@caught_by(DEPENDING + "test_jobs_that_belong_together_are_stored_together_or_not_at_all")
def a_flow_is_stored_in_part() -> None:
    """One job of a graph is refused, and the others are there without it."""
    swap(enqueue_jobs, "together", enqueue_jobs.enqueue)


# -- suspension and signals


@caught_by(SUSPENDING + "test_a_stale_suspension_changes_nothing")
def a_stale_suspension_hands_over() -> None:
    """An attempt that has lost its job brings its children into the world all the same."""
    true = decide.decide

    def planted(row: Standing, wish: Transition, now: Instant, past: PastOutcome) -> Decision:
        made = true(row, wish, now, past)
        if made.answer.status is Status.STALE and wish.trigger is Trigger.SUSPEND:
            return replace(made, children=wish.children)
        return made

    swap(decide, "decide", planted)


@caught_by(SUSPENDING + "test_a_signal_that_came_before_the_wait_is_not_missed")
def a_signal_between_look_and_wait_is_missed() -> None:
    """A task looks, the signal comes, the task lies down: nobody wakes it any more."""
    leave = Change.leave_attempt

    def planted(self: Change, wish: Transition) -> None:
        leave(self, replace(wish, signals=None))

    swap(Change, "leave_attempt", planted)


@caught_by("tests/test_flow.py::test_a_task_fans_out_and_goes_on_with_the_results[sqlite]",
           waits=True)  # fmt: skip
def each_attempt_makes_its_children_anew() -> None:
    """A task that is run again fans out again, and waits for other jobs than before."""

    def planted(job: JobRow, name: str, place: int) -> UUID:
        del job, name, place
        return uuid7()

    swap(context, "child_id", planted)
