"""Bugs in dependencies, suspension and signals."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tests.planted_bugs.bug import caught_by, swap
from tests.planted_bugs.bugs.sqlite import replace_sql

from windlass.core.clock import Instant
from windlass.core.decisions import decide
from windlass.core.decisions.decision_builder import DecisionBuilder
from windlass.core.decisions.transition import (
    ApplyResult,
    Decision,
    PastOutcome,
    Status,
    Transition,
)
from windlass.core.ids import uuid7
from windlass.core.job.dependency import Parent
from windlass.core.job.row import JobRow, LifecycleRow
from windlass.core.job.state import State, Trigger
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import fetch_one
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.batch import SqliteBatch
from windlass.worker import context

SQLITE = "tests/stores/test_sqlite.py::"
DEPENDENCIES = SQLITE + "TestDependencies::"
SUSPEND = SQLITE + "TestSuspend::"


# -- parents and children


@caught_by(DEPENDENCIES + "test_a_child_is_queued_by_the_success_of_its_parent")
def a_fast_path_success_skips_its_children() -> None:
    """The fast path of a success does not check whether other jobs wait for the job."""
    replace_sql("succeed", "AND awaited = 0", "")


@caught_by(DEPENDENCIES + "test_a_child_waits_for_all_of_its_parents")
def concurrent_parents_both_miss_the_last() -> None:
    """Two parents end at once and each counts stale rows: neither is the last."""

    def planted(self: SqliteBatch, job_id: UUID) -> tuple[Row, LifecycleRow] | None:
        row = self._rows.pop(job_id, None)
        if row is None:
            row = fetch_one(self._tx.connection, SQL.get_lifecycle, (job_id.bytes,))
        return None if row is None else (row, rows.lifecycle_row(row, job_id))

    swap(SqliteBatch, "lifecycle", planted)


@caught_by(DEPENDENCIES + "test_a_child_waits_for_all_of_its_parents")
def the_first_parent_queues_its_child() -> None:
    """A child is queued after the end of any parent, not of all parents."""
    true = decide.parent_ended

    def planted(row: LifecycleRow, parent: UUID, ended: State, now: Instant) -> Decision:
        return true(replace(row, waiting_for=min(row.waiting_for, 1)), parent, ended, now)

    swap(decide, "parent_ended", planted)


@caught_by(DEPENDENCIES + "test_a_child_still_waits_for_a_parent_that_is_retried")
def a_retried_parent_queues_its_child() -> None:
    """Any end of an attempt counts: the child runs while its parent waits for a retry."""
    write = SqliteBatch.write

    def planted(
        self: SqliteBatch, found: Row, row: LifecycleRow, made: Decision, now: Instant
    ) -> ApplyResult:
        answer = write(self, found, row, made, now)
        if row.awaited and made.changes.get("state") is State.RETRYING:
            self._ended.append((found[rows.N], row.id, State.SUCCEEDED))
            self.update_dependents(now)
        return answer

    swap(SqliteBatch, "write", planted)


@caught_by(DEPENDENCIES + "test_a_stale_settle_releases_no_child")
def a_stale_success_queues_a_child() -> None:
    """A refused success still releases the child."""
    true = decide.transition

    def planted(
        row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
    ) -> Decision:
        made = true(row, transition, now, past)
        if made.result.status is Status.STALE and transition.trigger is Trigger.SUCCEED:
            current = replace(transition, fence=row.fence, token=row.token)
            return replace(true(row, current, now, past),
                           result=made.result)  # fmt: skip
        return made

    swap(decide, "transition", planted)


@caught_by(
    SQLITE + "TestFailedParents::" + "test_a_failed_parent_cancels_all_that_depends_on_it[failure]"
)
def a_failed_parent_is_waited_for_forever() -> None:
    """Only a success is propagated: the child of a failed parent waits forever."""
    true = decide.parent_ended

    def planted(row: LifecycleRow, parent: UUID, ended: State, now: Instant) -> Decision:
        if ended is State.SUCCEEDED:
            return true(row, parent, ended, now)
        return Decision(ApplyResult(Status.CONFLICT, row.state))

    swap(decide, "parent_ended", planted)


@caught_by(DEPENDENCIES + "test_a_job_does_not_wait_for_a_succeeded_parent")
def an_ended_parent_is_waited_for() -> None:
    """A child waits for a parent that had ended before the child's enqueue."""
    swap(Parent, "open", property(lambda _: True))


@caught_by(DEPENDENCIES + "test_an_atomic_enqueue_stores_all_jobs_or_none")
def a_flow_is_stored_partially() -> None:
    """One job of a graph is refused, and the others are stored without it."""
    swap(enqueue_jobs, "enqueue_atomic", enqueue_jobs.enqueue)


# -- suspension and signals


@caught_by(SUSPEND + "test_a_stale_suspension_changes_nothing")
def a_stale_suspension_creates_its_children() -> None:
    """An attempt that lost its lease still creates its children."""
    true = decide.transition

    def planted(
        row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
    ) -> Decision:
        made = true(row, transition, now, past)
        if made.result.status is Status.STALE and transition.trigger is Trigger.SUSPEND:
            return replace(made, children=transition.children)
        return made

    swap(decide, "transition", planted)


@caught_by(SUSPEND + "test_a_signal_before_the_wait_is_not_lost")
def a_signal_between_check_and_wait_is_missed() -> None:
    """A signal between a task's check and its suspension is lost: the job never wakes."""
    leave = DecisionBuilder.end_attempt

    def planted(self: DecisionBuilder, transition: Transition) -> None:
        leave(self, replace(transition, signals=None))

    swap(DecisionBuilder, "end_attempt", planted)


@caught_by("tests/test_flow.py::test_a_task_fans_out_and_continues_with_the_results[sqlite]",
           waits=True)  # fmt: skip
def each_attempt_creates_new_children() -> None:
    """A repeated attempt fans out again, and waits for other jobs than before."""

    def planted(job: JobRow, name: str, index: int) -> UUID:
        del job, name, index
        return uuid7()

    swap(context, "child_id", planted)
