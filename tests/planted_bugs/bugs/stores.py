"""Mistakes in the rules that all stores share, and in how SQLite is used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import apsw
from tests.planted_bugs.bug import caught_by, swap

from windlass.core.clock import Instant
from windlass.core.decisions import decide
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.row_change import Change
from windlass.core.decisions.transition import Decision, PastOutcome, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.row import NewJob, Standing
from windlass.core.job.state import RESCUING, Trigger
from windlass.core.query.job_query import Page, Query
from windlass.core.records import Put
from windlass.store import EventPage, Saying
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import connection, engine
from windlass.stores.sqlite.connection import SqliteConfig
from windlass.stores.sqlite.engine import Engine
from windlass.stores.sqlite.write_queue import Call, deliver, run_together
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.transaction import Tx
from windlass.stores.wakeup import Signal

MEMORY = "tests/stores/test_memory.py::"
SQLITE = "tests/stores/test_sqlite.py::"
GROUPS = "tests/stores/sqlite/test_group_commit.py::"
POWER = "tests/stores/sqlite/test_power_cut.py::"


# -- the rules


@caught_by(SQLITE + "TestRetries::test_crashes_and_failures_are_counted_apart")
def a_crash_burns_a_retry() -> None:
    """A lease that ran out counts as a failure of the task: neighbours of a killer run out."""
    leave = Change.leave_attempt

    def planted(self: Change, wish: Transition) -> None:
        leave(self, wish)
        if wish.trigger in RESCUING:
            self.values["retry_count"] = self.row.retry_count + 1

    swap(Change, "leave_attempt", planted)


@caught_by(SQLITE + "TestRetries::test_coming_back_by_choice_counts_nowhere[snooze]")
def a_snooze_burns_a_retry() -> None:
    """A task that asks to be called later is counted as one that failed."""
    leave = Change.leave_attempt

    def planted(self: Change, wish: Transition) -> None:
        leave(self, wish)
        if wish.trigger is Trigger.SNOOZE:
            self.values["retry_count"] = self.row.retry_count + 1

    swap(Change, "leave_attempt", planted)


@caught_by(SQLITE + "TestLeases::"
           "test_a_rescue_does_not_take_a_lease_that_was_extended_meanwhile")  # fmt: skip
def a_rescue_goes_by_what_it_saw_a_moment_ago() -> None:
    """A lease that was extended between the look and the rescue is taken all the same."""
    true_decide = decide.decide

    def planted(row: Standing, wish: Transition, now: Instant, past: PastOutcome) -> Decision:
        if wish.trigger in RESCUING:
            row = replace(row, lease_until=0)
        return true_decide(row, wish, now, past)

    swap(decide, "decide", planted)


@caught_by(SQLITE + "TestHandover::test_without_success_nothing_is_handed_over[retry]")
def children_come_before_the_success() -> None:
    """What a task hands over is enqueued whatever becomes of the task, and again by its retry."""
    decision = Change.decision
    true_decide = decide.decide
    wished: list[Sequence[NewJob]] = []

    def told(
        self: Change, children: Sequence[NewJob] = (), awaits: Sequence[UUID] = ()
    ) -> Decision:
        return decision(self, wished[-1] if wished else children, awaits)

    def planted(row: Standing, wish: Transition, now: Instant, past: PastOutcome) -> Decision:
        wished.append(wish.children)
        try:
            return true_decide(row, wish, now, past)
        finally:
            wished.pop()

    swap(Change, "decision", told)
    swap(decide, "decide", planted)


@caught_by(SQLITE + "TestEnqueue::test_a_repeated_enqueue_is_answered_as_the_first")
def a_repeated_enqueue_is_another_job() -> None:
    """The store makes the id: a client that asks again after a lost answer has two jobs."""
    enqueue = enqueue_jobs.enqueue

    def planted(tx: Tx, wanted: Sequence[NewJob]) -> list[Enqueued]:
        return enqueue(tx, [replace(new, id=uuid7()) for new in wanted])

    swap(enqueue_jobs, "enqueue", planted)


@caught_by(MEMORY + "TestFinding::test_jobs_that_come_do_not_shift_the_pages")
def pages_count_from_the_newest() -> None:
    """A page begins at the n-th job from the top: each job that comes shifts all of them."""
    true_find = MemoryStore.find

    async def planted(self: MemoryStore, wanted: Query) -> Page:
        seen = int(wanted.cursor or "0")
        everything = await true_find(self, replace(wanted, cursor=None, limit=500))
        rows = everything.rows[seen : seen + wanted.limit]
        return Page(rows, str(seen + wanted.limit) if rows else None)

    swap(MemoryStore, "find", planted)


@caught_by(MEMORY + "TestTailing::test_a_tail_misses_nothing_while_two_write_at_once")
def a_number_is_drawn_before_it_is_written() -> None:
    """Events take numbers from a sequence and commit later: a reader passes by the slower one."""
    true_record, true_events = MemoryStore.record, MemoryStore.events
    hidden: dict[tuple[object, int], None] = {}

    async def slow(self: MemoryStore, sayings: Sequence[Saying]) -> Any:
        before = {it.lease.job_id: self._data.jobs[it.lease.job_id].seq for it in sayings}
        answers = await true_record(self, sayings)
        drawn = [
            (job, seq)
            for job, last in before.items()
            for seq in range(last + 1, self._data.jobs[job].seq + 1)
        ]
        hidden.update(dict.fromkeys(drawn))
        await asyncio.sleep(0.05)
        for number in drawn:
            hidden.pop(number)
        return answers

    async def planted(
        self: MemoryStore, job_id: Any, after: int = 0, limit: int = 1000
    ) -> EventPage | None:
        page = await true_events(self, job_id, after, limit)
        if page is None:
            return None
        seen = [event for event in page.events if (job_id, event.seq) not in hidden]
        return EventPage(seen, page.ended)

    swap(MemoryStore, "record", slow)
    swap(MemoryStore, "events", planted)


# -- waiting


@caught_by(SQLITE + "TestWaiting::test_a_job_enqueued_between_claim_and_wait_wakes", waits=True)
def a_wake_up_is_lost_between_look_and_wait() -> None:
    """Who finds nothing and then waits does not hear of what came in between."""
    wait = Signal.wait

    async def planted(self: Signal, since: int, timeout: float) -> bool:
        return await wait(self, self.count, timeout)

    swap(Signal, "wait", planted)


@caught_by(MEMORY + "TestWaiting::test_all_who_wait_are_woken", waits=True)
def a_wake_up_wakes_one_of_many() -> None:
    """Of those who wait, one is told; if it cannot take the job, nobody does."""

    def planted(self: Signal) -> None:
        with self._lock:
            self.count += 1
            first = next(iter(self._waiters.items()), None)
        if first is not None:
            event, loop = first
            loop.call_soon_threadsafe(event.set)

    swap(Signal, "notify", planted)


# -- the disk


def _synchronous(value: str) -> None:
    set_up = connection._set_up

    def planted(opened: apsw.Connection, config: SqliteConfig) -> None:
        set_up(opened, config)
        opened.pragma("synchronous", value)

    swap(connection, "_set_up", planted)


@caught_by(POWER + "test_the_store_opens_after_any_power_cut_and_works_on")
def nothing_is_synced() -> None:
    """synchronous=OFF: an acknowledged job is in a cache of the system, and nowhere else."""
    _synchronous("off")


@caught_by(POWER + "test_the_store_opens_after_any_power_cut_and_works_on")
def commits_are_not_synced() -> None:
    """synchronous=NORMAL with a write-ahead log: a power cut takes back the last commits."""
    _synchronous("normal")


@caught_by(GROUPS + "test_a_failing_commit_leaves_no_trace_of_any_call")
def the_answer_comes_before_the_commit() -> None:
    """Callers are told that their job is stored, and then it is committed."""

    def planted(calls: Sequence[Call[Any]], tx: Tx) -> None:
        run_together(calls, tx)
        for call in calls:
            assert call.loop is not None
            call.loop.call_soon_threadsafe(call.future.set_result, call.result)

    swap(engine, "run_together", planted)


@caught_by(GROUPS + "test_one_failing_call_of_a_group_does_not_fail_its_neighbours")
def one_bad_call_fails_its_group() -> None:
    """Calls that share a transaction share its error."""

    def planted(self: Engine, group: Sequence[Call[Any]]) -> None:
        try:
            self._transaction(group)
        except BaseException as error:  # noqa: BLE001 - it is the point
            for call in group:
                call.error = error
        deliver(group)

    swap(Engine, "_commit_group", planted)


class _Hasty(apsw.Connection):
    """Begins as a reader, and asks for the right to write when it first writes."""

    def execute(self, statements: str, *args: Any, **options: Any) -> Any:
        said = "BEGIN" if statements == "BEGIN IMMEDIATE" else statements
        return super().execute(said, *args, **options)


@caught_by(
    "tests/planted_bugs/test_race_points.py::test_a_writer_that_has_read_is_not_overtaken",
    raises=StoreUnavailableError,
)
def a_writer_begins_as_a_reader() -> None:
    """BEGIN instead of BEGIN IMMEDIATE: two who read and then write cannot both go on."""
    swap(apsw, "Connection", _Hasty)


@caught_by(MEMORY + "TestRecords::test_of_many_who_saw_the_same_version_one_writes")
def a_record_is_overwritten_unseen() -> None:
    """Compare-and-set without the comparison: of two leaders, both believe that they won."""
    put = MemoryStore.put_records

    async def planted(self: MemoryStore, puts: Sequence[Put]) -> Any:
        return await put(self, [replace(it, expected=None) for it in puts])

    swap(MemoryStore, "put_records", planted)
