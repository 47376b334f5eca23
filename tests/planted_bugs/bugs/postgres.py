"""Bugs of the PostgreSQL store: in its statements and in their use."""

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
from windlass.stores import event_tail as store_tail
from windlass.stores.postgres import PostgresStore, store
from windlass.stores.postgres.admin import migrator
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.engine import PostgresEngine
from windlass.stores.postgres.notify import CHANNEL, NotifyListener
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.batch import PostgresBatch
from windlass.stores.postgres.writes.claim_cursor import ClaimCursor, _PriorityCursor
from windlass.stores.postgres.writes.writer import PostgresWriter

CONTRACT = "tests/stores/test_postgres.py::"
HERE = "tests/stores/postgres/"
CROWD = HERE + "claims/test_concurrent_handles.py::"
CURSOR = HERE + "claims/test_claim_cursor.py::"
NOTIFY = HERE + "outages/test_notify.py::"
NEVER = 3600.0  # seconds, longer than any test


def replace_sql(query: str, old: str, new: str) -> None:
    """Change a statement."""
    text: str = getattr(SQL, query)
    if old not in text:
        raise LookupError(f"{old!r} is not in the query {query}: {text}")
    object.__setattr__(SQL, query, text.replace(old, new))


def replace_in_migrations(old: str, new: str) -> None:
    """Change the text of the migrations."""
    if not any(old in step.sql for step in migrator.MIGRATIONS):
        raise LookupError(f"{old!r} is in no migration")
    steps = tuple(replace(step, sql=step.sql.replace(old, new)) for step in migrator.MIGRATIONS)
    swap(migrator, "MIGRATIONS", steps)


# -- claim


@caught_by(
    CROWD + "test_a_claim_skips_rows_locked_by_another_claim",
    waits=True,
)
def a_claim_waits_for_locked_rows() -> None:
    """FOR UPDATE without SKIP LOCKED: all workers wait for the one that claims."""
    replace_sql("claim", "FOR UPDATE SKIP LOCKED", "FOR UPDATE")


@caught_by(CONTRACT + "TestClaim::test_a_claim_takes_no_more_than_its_limit")
def a_claim_takes_more_than_its_limit() -> None:
    """The LIMIT is in a subquery that the planner may repeat per row: it claims too many."""
    replace_sql(
        "claim", "FROM windlass_queued WHERE ctid", "FROM windlass_queued AS each WHERE ctid"
    )
    replace_sql(
        "claim", ") AS queued\n    ))", ") AS queued WHERE requested.queue = each.queue\n    ))"
    )


@caught_by(CONTRACT + "TestClaim::test_a_repeated_claim_for_another_queue_returns_the_first_jobs")
def a_repeated_claim_takes_more() -> None:
    """A claim with a lost response is repeated, and claims as many jobs again."""
    replace_sql("claim", "NOT EXISTS (SELECT FROM repeated) AND", "")


@caught_by(CROWD + "test_a_claim_repeated_before_its_commit_returns_each_job_once")
def a_claim_ignores_its_concurrent_repeat() -> None:
    """A timed-out claim is repeated while the server still runs it: both claim jobs."""
    replace_sql(
        "claim",
        "CASE WHEN lease.xmin = (SELECT version FROM held) THEN excluded.jobs\n"
        "            ELSE windlass_raise_claim_conflict() END",
        "lease.jobs || excluded.jobs",
    )


@caught_by(CURSOR + "test_every_position_is_read_once_unless_it_lies_before_the_start")
def a_claim_skips_new_priorities() -> None:
    """A claim skips priorities of which no job was claimed before."""
    parts = ClaimCursor._queue_ranges

    def planted(self: ClaimCursor, queue: str) -> Iterable[Row]:
        return [part for part in parts(self, queue) if part[1] == part[2]] or parts(self, queue)

    swap(ClaimCursor, "_queue_ranges", planted)


@caught_by(CURSOR + "test_a_job_whose_transaction_commits_late_is_found_by_the_next_claim")
def a_claim_cursor_never_moves_back() -> None:
    """Queue positions are a cursor: a job numbered early and committed late is skipped."""
    swap(_PriorityCursor, "start", property(lambda self: self._last + 1))


@caught_by(
    HERE + "claims/test_lease_rows.py::test_two_late_repeats_of_one_claim_keep_each_others_jobs"
)
def a_lease_row_is_compared_by_value() -> None:
    """A row that was changed and changed back is treated as unchanged."""
    replace_sql("claim", "lease.xmin = (SELECT version FROM held)",
          "lease.jobs = (SELECT jobs FROM held)")  # fmt: skip


# -- leases


@caught_by(CONTRACT + "TestSettle::test_a_forged_lease_alone_in_a_call_settles_nothing"
           "[success]")  # fmt: skip
def a_settle_by_id_and_token() -> None:
    """One UPDATE settles by id and worker: an earlier attempt of the same worker succeeds."""
    replace_sql("succeed", "AND job.fence = transition.fence", "AND transition.fence IS NOT NULL")


@caught_by(CONTRACT + "TestSettle::test_a_forged_lease_alone_in_a_call_settles_nothing"
           "[success]")  # fmt: skip
def a_settle_by_id_and_attempt() -> None:
    """One UPDATE settles by id and attempt number: any worker can end the job."""
    replace_sql("succeed", "AND job.token = transition.token", "AND transition.token IS NOT NULL")


@caught_by(HERE + "test_server_clock.py::test_the_clock_of_a_worker_does_not_matter[3600]")
def leases_use_the_workers_clock() -> None:
    """Instants come from the client: a worker with a fast clock takes valid leases."""

    def planted(self: PostgresEngine) -> Instant:
        return time.time_ns() // 1000 if self._clock is None else self._clock.now()

    swap(PostgresEngine, "now", planted)


@caught_by(CROWD + "test_a_cancel_during_a_claim_applies_to_the_claimed_job")
def a_decision_is_made_without_the_lock() -> None:
    """A row is read, decided about, and overwritten without a lock."""
    replace_sql("lock_lifecycles", "LIMIT 1 FOR UPDATE SKIP LOCKED", "LIMIT 1")


@caught_by(CONTRACT + "TestLeases::"
           "test_a_rescue_does_not_end_a_lease_extended_meanwhile")  # fmt: skip
def a_rescue_does_not_recheck_the_lease() -> None:
    """A sweeper reads expired leases, and rescues them without checking the lease again."""
    replace_sql("lock_lifecycles", "worker, lease_until,", "worker, least(lease_until, 0),")


@caught_by(CONTRACT + "TestLeases::test_each_job_of_a_claim_can_expire_until_it_ends")
def a_lease_is_forgotten_with_its_first_job() -> None:
    """After the first settled job of a claim, its other jobs are never rescued."""
    replace_sql("due", "WHERE held.token NOT IN (SELECT token FROM running)",
          "WHERE held.active < cardinality(held.jobs)")  # fmt: skip


@caught_by(CROWD + "test_batches_in_opposite_orders_wait_for_each_other")
def batches_are_locked_in_any_order() -> None:
    """Two batches lock the same jobs in different orders: the server reports a deadlock."""

    load = PostgresBatch.load

    async def planted(self: PostgresBatch, ids: Iterable[UUID], *, wait: bool = False) -> None:
        for job in ids:
            await load(self, [job], wait=wait)

    swap(PostgresBatch, "load", planted)


# -- enqueue


@caught_by(CROWD + "test_a_key_requested_by_two_calls_at_once_is_stored_once")
def a_unique_key_is_only_selected() -> None:
    """First a SELECT, then an INSERT: concurrent enqueues all find the key free."""
    replace_sql("unavailable_keys", "NOT pg_try_advisory_xact_lock(key)", "false")
    object.__setattr__(SQL, "insert_keys", SQL.insert_keys + " ON CONFLICT DO NOTHING")


@caught_by(HERE + "admin/test_migrator.py::test_serial_numbers_exceed_32_bits", raises=StoreError)
def jobs_are_numbered_with_32_bits() -> None:
    """serial, not bigserial: after two billion jobs every enqueue fails."""
    replace_in_migrations("windlass_serial;", "windlass_serial AS integer;")


@caught_by(NOTIFY + "test_no_message_is_sent_in_a_transaction_that_writes_jobs")
def a_notify_is_sent_in_the_transaction() -> None:
    """NOTIFY in the enqueue transaction: all commits of the server wait for one lock."""
    decide = PostgresWriter._decide

    async def planted(self: PostgresWriter, run: Callable[..., Any], items: Sequence[Any]) -> Any:
        async def both(connection: Connection, *given: Any) -> Any:
            done = await run(connection, *given)
            await connection.execute(SQL.notify, CHANNEL, "sql 1 ")
            return done

        return await decide(self, both, items)

    swap(PostgresWriter, "_decide", planted)


# -- notifications and tails


@caught_by(NOTIFY + "test_without_any_message_a_tail_still_returns_all_events", waits=True)
def notify_without_polling() -> None:
    """LISTEN without polling: a lost notification is never noticed."""
    swap(store, "tail", partial(store_tail.tail, poll=NEVER))


@caught_by(
    NOTIFY + "test_a_silently_dropped_listener_is_noticed",
    waits=True,
)
def a_lost_listener_is_not_noticed() -> None:
    """LISTEN runs once: behind a pooler or after a silent disconnect it receives nothing."""

    async def planted(self: NotifyListener) -> bool:
        return await self._broken.wait()

    swap(NotifyListener, "_probe_until_lost", planted)


@caught_by(
    NOTIFY + "test_a_killed_listener_reconnects_and_misses_nothing",
    waits=True,
)
def changes_during_a_reconnect_are_missed() -> None:
    """A listener reconnects, and does not read the changes made in between."""

    async def planted(self: NotifyListener, connection: Connection) -> None:
        self._broken.clear()
        connection.add_termination_listener(lambda *_: self._broken.set())
        await connection.add_listener(CHANNEL, self._receive)
        self.ready.set()

    swap(NotifyListener, "_listen", planted)


@caught_by(
    HERE
    + "outages/test_live_event_gaps.py::test_events_numbered_early_and_committed_late_are_returned"
)
def a_feed_follows_a_sequence() -> None:
    """All events have numbers of one bigserial, and a feed continues after the highest."""
    replace_in_migrations("    body bytea,\n", "    body bytea,\n    arrival bigserial,\n")
    tail = PostgresStore.tail
    highest: Counter[PostgresStore] = Counter()
    seen: set[tuple[PostgresStore, UUID, int]] = set()

    async def read(connection: Connection, reader: PostgresStore) -> None:
        rows = await connection.fetch(
            "SELECT arrival, job.id, log.seq FROM windlass_log AS log, windlass_job AS job "
            "WHERE job.n = log.n AND arrival > $1 ORDER BY arrival",
            highest[reader],
        )
        for arrival, job, seq in rows:
            highest[reader] = max(highest[reader], arrival)
            seen.add((reader, job, seq))

    async def planted(self: PostgresStore, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        async for event in tail(self, job_id, after):
            await self._engine.call(partial(read, reader=self))
            if event.type != EventType.LOG or (self, job_id, event.seq) in seen:
                yield event

    swap(PostgresStore, "tail", planted)
