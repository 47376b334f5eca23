"""Mistakes that queues make on PostgreSQL: in its statements, and in how the store uses it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.clock import Instant
from windlass.core.errors import StoreError
from windlass.core.event import Event, EventType
from windlass.stores import tail as store_tail
from windlass.stores.postgres import PostgresStore, store
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.engine import Engine
from windlass.stores.postgres.notify import CHANNEL, Listener
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.schema import migrator
from windlass.stores.postgres.writes.batch import Batch
from windlass.stores.postgres.writes.claim_cursor import Line, _Trail
from windlass.stores.postgres.writes.handle import Writes

CONTRACT = "tests/stores/test_postgres.py::"
HERE = "tests/stores/postgres/"
CROWD = HERE + "claims/test_concurrent_handles.py::"
CURSOR = HERE + "claims/test_claim_cursor.py::"
NOTIFY = HERE + "outages/test_notify.py::"
NEVER = 3600.0  # seconds: longer than any test


def spoil(query: str, was: str, now: str) -> None:
    """Change a statement."""
    text: str = getattr(SQL, query)
    if was not in text:
        raise LookupError(f"{was!r} is not in the query {query}: {text}")
    object.__setattr__(SQL, query, text.replace(was, now))


def migrated(was: str, now: str) -> None:
    """Change the schema that is made."""
    if not any(was in step.sql for step in migrator.MIGRATIONS):
        raise LookupError(f"{was!r} is in no migration")
    steps = tuple(replace(step, sql=step.sql.replace(was, now)) for step in migrator.MIGRATIONS)
    swap(migrator, "MIGRATIONS", steps)


# -- claim


@caught_by(
    CROWD + "test_a_claim_steps_over_what_another_is_taking",
    waits=True,
)
def a_claim_waits_for_the_first_in_line() -> None:
    """FOR UPDATE without SKIP LOCKED: all workers stand behind the one that claims."""
    spoil("claim", "FOR UPDATE SKIP LOCKED", "FOR UPDATE")


@caught_by(CONTRACT + "TestClaiming::test_a_claim_takes_no_more_than_its_limit")
def a_claim_takes_more_than_its_limit() -> None:
    """The LIMIT is in a subquery that a planner may run again for each row: it takes more."""
    spoil("claim", "FROM windlass_line WHERE ctid", "FROM windlass_line AS each WHERE ctid")
    spoil("claim", ") AS line\n    ))", ") AS line WHERE wanted.queue = each.queue\n    ))")


@caught_by(
    CONTRACT + "TestClaiming::test_a_repeat_that_asks_for_another_queue_answers_what_the_first_took"
)
def a_repeated_claim_takes_more() -> None:
    """A claim whose answer was lost is made again, and takes as many jobs once more."""
    spoil("claim", "NOT EXISTS (SELECT FROM before) AND", "")


@caught_by(CROWD + "test_a_claim_repeated_before_its_first_call_commits_hands_out_once")
def a_claim_does_not_meet_its_repeat() -> None:
    """A claim that timed out is repeated while the server is still at it: both take jobs."""
    spoil("claim", "CASE WHEN lease.xmin = (SELECT version FROM held) THEN excluded.jobs\n"
          "            ELSE windlass_meet() END", "lease.jobs || excluded.jobs")  # fmt: skip


@caught_by(CURSOR + "test_every_place_is_read_once_unless_it_lies_behind")
def a_claim_reads_only_priorities_that_it_knows() -> None:
    """Priorities of which nothing was taken yet are left out of the line."""
    parts = Line._parts

    def planted(self: Line, queue: str) -> Iterable[Row]:
        return [part for part in parts(self, queue) if part[1] == part[2]] or parts(self, queue)

    swap(Line, "_parts", planted)


@caught_by(CURSOR + "test_a_job_whose_transaction_commits_late_is_found_by_the_next_claim")
def a_claim_never_looks_back() -> None:
    """Places in line are a cursor: a job that was numbered early and committed late is passed."""
    swap(_Trail, "start", property(lambda self: self._last + 1))


@caught_by(
    HERE
    + "claims/test_lease_rows.py::test_two_late_repeats_of_one_claim_do_not_forget_each_others_jobs"
)
def a_lease_row_that_looks_the_same_is_the_same() -> None:
    """A row that was changed and changed back is taken for one that nobody touched."""
    spoil("claim", "lease.xmin = (SELECT version FROM held)",
          "lease.jobs = (SELECT jobs FROM held)")  # fmt: skip


# -- leases


@caught_by(CONTRACT + "TestSettling::test_a_forged_lease_settles_nothing_in_a_call_of_its_own"
           "[success]")  # fmt: skip
def a_settle_by_id_and_token() -> None:
    """One UPDATE settles by id and worker: an earlier attempt of the same worker passes."""
    spoil("succeed", "AND job.fence = wish.fence", "AND wish.fence IS NOT NULL")


@caught_by(CONTRACT + "TestSettling::test_a_forged_lease_settles_nothing_in_a_call_of_its_own"
           "[success]")  # fmt: skip
def a_settle_by_id_and_attempt() -> None:
    """One UPDATE settles by id and attempt: whoever can count can end the job."""
    spoil("succeed", "AND job.token = wish.token", "AND wish.token IS NOT NULL")


@caught_by(HERE + "test_clock.py::test_the_clock_of_a_worker_is_of_no_account[3600]")
def leases_go_by_the_workers_clock() -> None:
    """Instants are made where the statement is sent: a clock that is ahead takes live leases."""

    def planted(self: Engine) -> Instant:
        return time.time_ns() // 1000 if self._clock is None else self._clock.now()

    swap(Engine, "now", planted)


@caught_by(CROWD + "test_a_cancel_during_a_claim_decides_about_the_claimed_job")
def a_decision_is_made_without_the_lock() -> None:
    """A row is read, decided about, and written over whatever came in between."""
    spoil("standings", "LIMIT 1 FOR UPDATE SKIP LOCKED", "LIMIT 1")


@caught_by(CONTRACT + "TestLeases::"
           "test_a_rescue_does_not_take_a_lease_that_was_extended_meanwhile")  # fmt: skip
def a_rescue_does_not_look_again() -> None:
    """A reaper looks for expired leases, and then takes them without a second look at the lease."""
    spoil("standings", "worker, lease_until,", "worker, least(lease_until, 0),")


@caught_by(CONTRACT + "TestLeases::test_each_job_of_a_claim_is_watched_until_it_ends")
def a_lease_is_forgotten_with_its_first_job() -> None:
    """Whoever claimed several jobs and ended one of them is no longer watched: the rest strand."""
    spoil("expired", "WHERE held.token NOT IN (SELECT token FROM running)",
          "WHERE held.active < cardinality(held.jobs)")  # fmt: skip


@caught_by(CROWD + "test_batches_in_opposite_orders_wait_for_each_other")
def batches_are_locked_as_they_come() -> None:
    """Two who have the same jobs lock them in different orders, and the server kills one."""

    load = Batch.load

    async def planted(self: Batch, ids: Iterable[UUID], *, wait: bool = False) -> None:
        for job in ids:
            await load(self, [job], wait=wait)

    swap(Batch, "load", planted)


# -- putting in


@caught_by(CROWD + "test_a_key_that_two_look_for_at_once_is_taken_once")
def a_unique_key_is_only_looked_up() -> None:
    """First a SELECT, then an INSERT: of many who enqueue at once, all find the key free."""
    spoil("taken_keys", "NOT pg_try_advisory_xact_lock(key)", "false")
    object.__setattr__(SQL, "insert_keys", SQL.insert_keys + " ON CONFLICT DO NOTHING")


@caught_by(HERE + "schema/test_migrator.py::test_numbers_go_on_beyond_32_bits", raises=StoreError)
def jobs_are_numbered_with_32_bits() -> None:
    """serial, not bigserial: after two thousand million jobs nothing can be enqueued any more."""
    migrated("windlass_serial;", "windlass_serial AS integer;")


@caught_by(NOTIFY + "test_no_message_is_sent_in_a_transaction_that_writes_jobs")
def a_hint_is_sent_with_the_jobs() -> None:
    """NOTIFY in the transaction that enqueues: all commits of the server queue for one lock."""
    decide = Writes._decide

    async def planted(self: Writes, run: Callable[..., Any], items: Sequence[Any]) -> Any:
        async def both(connection: Connection, *given: Any) -> Any:
            done = await run(connection, *given)
            await connection.execute(SQL.notify, CHANNEL, "sql 1 ")
            return done

        return await decide(self, both, items)

    swap(Writes, "_decide", planted)


# -- hearing and following


@caught_by(NOTIFY + "test_without_any_message_a_follower_still_hears_all", waits=True)
def nobody_polls_beneath_the_hints() -> None:
    """LISTEN and nothing beneath it: a message that does not come is news that never comes."""
    swap(store, "tail", partial(store_tail.tail, poll=NEVER))


@caught_by(
    NOTIFY + "test_a_listener_that_went_deaf_without_a_word_is_noticed",
    waits=True,
)
def a_deaf_listener_is_not_noticed() -> None:
    """LISTEN is said once: behind a pooler, or after a silent drop, nobody hears, for good."""

    async def planted(self: Listener) -> bool:
        return await self._broken.wait()

    swap(Listener, "_watch", planted)


@caught_by(
    NOTIFY + "test_a_listener_that_was_killed_hears_again_and_missed_nothing",
    waits=True,
)
def what_came_while_nobody_listened_is_missed() -> None:
    """A listener that was cut off listens again, and does not look at what came meanwhile."""

    async def planted(self: Listener, connection: Connection) -> None:
        self._broken.clear()
        connection.add_termination_listener(lambda *_: self._broken.set())
        await connection.add_listener(CHANNEL, self._hear)
        self.ready.set()

    swap(Listener, "_listen", planted)


@caught_by(
    HERE
    + "outages/test_live_event_gaps.py::test_what_was_numbered_early_and_committed_late_is_heard"
)
def a_feed_goes_by_a_sequence() -> None:
    """All events have numbers of one bigserial, and a feed goes on after the highest it saw."""
    migrated("    body bytea,\n", "    body bytea,\n    arrival bigserial,\n")
    tail = PostgresStore.tail
    highest: Counter[PostgresStore] = Counter()
    seen: set[tuple[PostgresStore, UUID, int]] = set()

    async def read(connection: Connection, reader: PostgresStore) -> None:
        lines = await connection.fetch(
            "SELECT arrival, job.id, log.seq FROM windlass_log AS log, windlass_job AS job "
            "WHERE job.n = log.n AND arrival > $1 ORDER BY arrival",
            highest[reader],
        )
        for arrival, job, seq in lines:
            highest[reader] = max(highest[reader], arrival)
            seen.add((reader, job, seq))

    async def planted(self: PostgresStore, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        async for event in tail(self, job_id, after):
            await self._engine.call(partial(read, reader=self))
            if event.type != EventType.LOG or (self, job_id, event.seq) in seen:
                yield event

    swap(PostgresStore, "tail", planted)
