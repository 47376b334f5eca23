"""Bugs in the rules that all stores share, and in the use of SQLite."""

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
from windlass.core.decisions.decision_builder import DecisionBuilder
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import Decision, PastOutcome, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import RESCUING, Trigger
from windlass.core.query.job_query import JobQuery, Page
from windlass.core.versioned_record import Put
from windlass.store import AttemptRecords, EventPage
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import connection, engine
from windlass.stores.sqlite.config import SqliteConfig
from windlass.stores.sqlite.engine import SqliteEngine
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.write_calls import WriteCall, deliver, run_group
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction
from windlass.stores.wakeup import Wakeup

MEMORY = "tests/stores/test_memory.py::"
SQLITE = "tests/stores/test_sqlite.py::"
GROUPS = "tests/stores/sqlite/test_group_commit.py::"
POWER = "tests/stores/sqlite/test_power_cut.py::"


# -- shared rules


@caught_by(SQLITE + "TestRetries::test_crashes_and_failures_are_counted_separately")
def a_crash_burns_a_retry() -> None:
    """An expired lease counts as a failure of the task: jobs beside a killer lose retries."""
    leave = DecisionBuilder.end_attempt

    def planted(self: DecisionBuilder, transition: Transition) -> None:
        leave(self, transition)
        if transition.trigger in RESCUING:
            self.values["retry_count"] = self.row.retry_count + 1

    swap(DecisionBuilder, "end_attempt", planted)


@caught_by(SQLITE + "TestRetries::test_releases_and_snoozes_are_not_counted[snooze]")
def a_snooze_burns_a_retry() -> None:
    """A snooze counts as a failure."""
    leave = DecisionBuilder.end_attempt

    def planted(self: DecisionBuilder, transition: Transition) -> None:
        leave(self, transition)
        if transition.trigger is Trigger.SNOOZE:
            self.values["retry_count"] = self.row.retry_count + 1

    swap(DecisionBuilder, "end_attempt", planted)


@caught_by(SQLITE + "TestLeases::"
           "test_a_rescue_does_not_end_a_lease_extended_meanwhile")  # fmt: skip
def a_rescue_uses_a_stale_read() -> None:
    """A lease that was extended between the read and the rescue is rescued anyway."""
    true = decide.transition

    def planted(
        row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
    ) -> Decision:
        if transition.trigger in RESCUING:
            row = replace(row, lease_until=0)
        return true(row, transition, now, past)

    swap(decide, "transition", planted)


@caught_by(SQLITE + "TestChildren::test_without_a_success_no_children_are_created[retry]")
def children_are_created_before_the_success() -> None:
    """The children of a task are enqueued whatever its outcome, and again by its retry."""
    decision = DecisionBuilder.decision
    true = decide.transition
    pending: list[Sequence[NewJob]] = []

    def decision_with_children(
        self: DecisionBuilder, children: Sequence[NewJob] = (), awaits: Sequence[UUID] = ()
    ) -> Decision:
        return decision(self, pending[-1] if pending else children, awaits)

    def planted(
        row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
    ) -> Decision:
        pending.append(transition.children)
        try:
            return true(row, transition, now, past)
        finally:
            pending.pop()

    swap(DecisionBuilder, "decision", decision_with_children)
    swap(decide, "transition", planted)


@caught_by(SQLITE + "TestEnqueue::test_a_repeated_enqueue_returns_the_same_result")
def a_repeated_enqueue_is_another_job() -> None:
    """The store makes the id: a client that repeats after a lost response has two jobs."""
    enqueue = enqueue_jobs.enqueue

    def planted(tx: WriteTransaction, wanted: Sequence[NewJob]) -> list[EnqueueResult]:
        return enqueue(tx, [replace(new, id=uuid7()) for new in wanted])

    swap(enqueue_jobs, "enqueue", planted)


@caught_by(MEMORY + "TestFind::test_new_jobs_do_not_shift_the_pages")
def pages_use_an_offset() -> None:
    """A page starts at the n-th job from the top: each new job shifts all pages."""
    true_find = MemoryStore.find

    async def planted(self: MemoryStore, wanted: JobQuery) -> Page:
        start = int(wanted.cursor or "0")
        everything = await true_find(self, replace(wanted, cursor=None, limit=500))
        rows = everything.rows[start : start + wanted.limit]
        return Page(rows, str(start + wanted.limit) if rows else None)

    swap(MemoryStore, "find", planted)


@caught_by(MEMORY + "TestTail::test_a_tail_misses_nothing_while_two_write_at_once")
def a_number_is_drawn_before_it_is_written() -> None:
    """Events take sequence numbers and commit later: a reader skips the slower one."""
    true_record, true_events = MemoryStore.record, MemoryStore.events
    hidden: dict[tuple[object, int], None] = {}

    async def slow(self: MemoryStore, attempt_records: Sequence[AttemptRecords]) -> Any:
        before = {it.lease.job_id: self._data.jobs[it.lease.job_id].seq for it in attempt_records}
        answers = await true_record(self, attempt_records)
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
        visible = [event for event in page.events if (job_id, event.seq) not in hidden]
        return EventPage(visible, page.ended)

    swap(MemoryStore, "record", slow)
    swap(MemoryStore, "events", planted)


# -- wake-ups


@caught_by(SQLITE + "TestWakeup::test_an_enqueue_between_claim_and_wait_wakes_the_wait", waits=True)
def a_wakeup_is_lost_between_claim_and_wait() -> None:
    """A worker that finds nothing and then waits misses changes made in between."""
    wait = Wakeup.wait

    async def planted(self: Wakeup, since: int, timeout: float) -> bool:
        return await wait(self, self.count, timeout)

    swap(Wakeup, "wait", planted)


@caught_by(MEMORY + "TestWakeup::test_all_waits_are_woken", waits=True)
def a_wakeup_wakes_only_one_wait() -> None:
    """Only one waiter is woken; if it cannot take the job, no other does."""

    def planted(self: Wakeup) -> None:
        with self._lock:
            self.count += 1
            first = next(iter(self._waiters.items()), None)
        if first is not None:
            event, loop = first
            loop.call_soon_threadsafe(event.set)

    swap(Wakeup, "notify", planted)


# -- the disk


def _synchronous(value: str) -> None:
    set_up = connection._configure

    def planted(opened: apsw.Connection, config: SqliteConfig) -> None:
        set_up(opened, config)
        opened.pragma("synchronous", value)

    swap(connection, "_configure", planted)


@caught_by(POWER + "test_the_store_opens_and_works_after_any_power_cut")
def nothing_is_synced() -> None:
    """synchronous=OFF: an acknowledged job exists only in a cache of the system."""
    _synchronous("off")


@caught_by(POWER + "test_the_store_opens_and_works_after_any_power_cut")
def commits_are_not_synced() -> None:
    """synchronous=NORMAL with a write-ahead log: a power cut loses the last commits."""
    _synchronous("normal")


@caught_by(GROUPS + "test_a_failing_commit_leaves_no_trace_of_any_call")
def the_response_comes_before_the_commit() -> None:
    """Callers get a success before their job is committed."""

    def planted(calls: Sequence[WriteCall[Any]], tx: WriteTransaction) -> None:
        run_group(calls, tx)
        for call in calls:
            assert call.loop is not None
            call.loop.call_soon_threadsafe(call.future.set_result, call.result)

    swap(engine, "run_group", planted)


@caught_by(GROUPS + "test_one_failing_call_of_a_group_does_not_fail_the_others")
def one_bad_call_fails_its_group() -> None:
    """Calls that share a transaction share its error."""

    def planted(self: SqliteEngine, group: Sequence[WriteCall[Any]]) -> None:
        try:
            self._transaction(group)
        except BaseException as error:  # noqa: BLE001 - it is the bug
            for call in group:
                call.error = error
        deliver(group)

    swap(SqliteEngine, "_commit_group", planted)


class _DeferredConnection(apsw.Connection):
    """Starts each transaction as a reader."""

    def execute(self, statements: str, *args: Any, **options: Any) -> Any:
        sql = "BEGIN" if statements == "BEGIN IMMEDIATE" else statements
        return super().execute(sql, *args, **options)


@caught_by(
    "tests/planted_bugs/test_race_points.py::test_a_writer_that_has_read_is_not_overtaken",
    raises=StoreUnavailableError,
)
def a_writer_starts_as_a_reader() -> None:
    """BEGIN instead of BEGIN IMMEDIATE: two transactions that read and then write block."""
    swap(apsw, "Connection", _DeferredConnection)


@caught_by(MEMORY + "TestVersionedRecords::test_one_of_many_puts_with_the_same_version_succeeds")
def a_record_is_overwritten_without_a_check() -> None:
    """Compare-and-set without the comparison: two leaders both win."""
    put = MemoryStore.put_records

    async def planted(self: MemoryStore, puts: Sequence[Put]) -> Any:
        return await put(self, [replace(it, expected=None) for it in puts])

    swap(MemoryStore, "put_records", planted)
