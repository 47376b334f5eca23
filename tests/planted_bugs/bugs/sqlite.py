"""Bugs in SQLite's statements: one condition removed at a time."""

from __future__ import annotations

import re

import apsw
from tests.planted_bugs.bug import caught_by, swap

from windlass.core.clock import Instant
from windlass.core.job.row import JobRow
from windlass.stores.sqlite import records
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.writes import maintenance

SQLITE = "tests/stores/test_sqlite.py::"


def replace_sql(query: str, old: str, new: str) -> None:
    """Change a statement and remove its INDEXED BY clauses, which may no longer fit."""
    text: str = getattr(SQL, query)
    if old not in text:
        raise LookupError(f"{old!r} is not in the query {query}: {text}")
    object.__setattr__(SQL, query, re.sub(r"INDEXED BY \w+", "", text.replace(old, new)))


# -- claim


@caught_by(SQLITE + "TestClaim::test_a_running_job_is_not_claimed_again")
def a_claim_takes_running_jobs() -> None:
    """A running job is claimed again."""
    replace_sql("claim", "state = 'queued'", "state IN ('queued', 'running')")


@caught_by(SQLITE + "TestClaim::test_the_fence_grows_by_one_with_every_claim")
def a_claim_does_not_raise_the_fence() -> None:
    """All attempts of a job have one fence: an outside system cannot detect a stale write."""
    replace_sql("claim", "fence = fence + 1", "fence = max(fence, 1)")


@caught_by(
    SQLITE
    + "TestLeases::test_a_stale_worker_cannot_settle_while_the_next_worker_runs_the_job[success]"
)
def a_claim_keeps_the_old_lease() -> None:
    """Neither fence nor token change with the holder: a stale settle matches the next attempt."""
    replace_sql("claim", "fence = fence + 1", "fence = max(fence, 1)")
    replace_sql("claim", "token = :token", "token = coalesce(token, :token)")


@caught_by(SQLITE + "TestClaim::test_an_expired_job_is_never_claimed")
def a_claim_takes_expired_jobs() -> None:
    """A job starts hours after its expiry."""
    replace_sql("claim", "expires_at > :now", "expires_at > 0")


@caught_by(SQLITE + "TestClaim::test_a_repeated_claim_omits_settled_jobs")
def a_repeated_claim_returns_settled_jobs() -> None:
    """A repeated claim returns jobs that its worker has settled meanwhile."""
    replace_sql("jobs_by_token", "state = 'running' AND", "")


@caught_by(SQLITE + "TestInstants::"
           "test_the_order_holds_across_attempts_when_the_clock_steps_back")  # fmt: skip
def instants_follow_a_clock_that_steps_back() -> None:
    """A job starts before it was queued, after the machine's clock was set back."""
    replace_sql("claim", "max(:now, updated_at)", ":now")


# -- extend


@caught_by(SQLITE + "TestLeases::test_only_the_holders_own_lease_can_be_extended")
def an_extension_checks_no_fence() -> None:
    """The heartbeat of an ended attempt extends the lease of the next one."""
    replace_sql("extend", "fence = ?", "? >= 0")


@caught_by(SQLITE + "TestLeases::test_only_the_holders_own_lease_can_be_extended")
def an_extension_checks_no_token() -> None:
    """The attempt number alone is enough to extend a lease."""
    replace_sql("extend", "token = ?", "? IS NOT NULL")


@caught_by(SQLITE + "TestLeases::test_a_lease_ends_with_its_attempt")
def an_extension_checks_no_state() -> None:
    """A heartbeat after the end of its attempt is accepted."""
    replace_sql("extend", "state = 'running' AND", "")
    replace_sql("extend", "max(lease_until, ?)", "max(coalesce(lease_until, 0), ?)")


@caught_by(SQLITE + "TestLeases::test_a_stale_worker_cannot_extend[False]")
def an_extension_revives_a_lease() -> None:
    """A stale worker extends by the job's id and gets the job back."""
    replace_sql("extend", "SET lease_until", "SET state = 'running', lease_until")
    replace_sql(
        "extend", "state = 'running' AND fence = ? AND token = ?", "? >= 0 AND ? IS NOT NULL"
    )


@caught_by(SQLITE + "TestLeases::test_an_extension_never_shortens_a_lease")
def an_extension_shortens_a_lease() -> None:
    """A late heartbeat shortens the lease that a newer one extended."""
    replace_sql("extend", "max(lease_until, ?)", "?")


# -- fast path of a settle


@caught_by(SQLITE + "TestSettle::test_a_forged_lease_alone_in_a_call_settles_nothing[success]")
def a_success_checks_no_fence() -> None:
    """The fast path of a settle checks the worker's token, but not the attempt."""
    replace_sql("succeed", "fence = ?4", "?4 IS NOT NULL")


@caught_by(SQLITE + "TestSettle::test_a_forged_lease_alone_in_a_call_settles_nothing[success]")
def a_success_checks_no_token() -> None:
    """The fast path of a settle checks only the id and the attempt number."""
    replace_sql("succeed", "+token = ?5", "?5 IS NOT NULL")


@caught_by(SQLITE + "TestSettle::test_a_repeated_settle_returns_the_same_result[success]")
def a_success_checks_no_state() -> None:
    """A repeated settle is written twice and counted twice."""
    replace_sql("succeed", "state = 'running' AND", "")


@caught_by(SQLITE + "TestCancel::test_an_accepted_cancel_wins_over_every_outcome[success]")
def a_success_overrules_a_cancel() -> None:
    """An accepted cancel is overruled by a success."""
    replace_sql("succeed", "AND cancel_at IS NULL", "")


@caught_by(
    SQLITE + "TestSettle::test_a_repeated_settle_is_not_confused_with_other_attempts",
)
def a_repeat_is_compared_with_the_first_attempt() -> None:
    """A worker repeats a settle after a lost response, and gets a stale result."""
    replace_sql("past_outcome", "fence = ?", "? > 0")


# -- rescue


@caught_by(SQLITE + "TestLeases::test_a_lease_that_is_extended_in_time_is_never_lost")
def a_rescue_ignores_the_lease() -> None:
    """Every running job is treated as expired."""
    replace_sql("expired", "lease_until <= ?", "? > 0")


@caught_by(SQLITE + "TestDelayAndHold::test_a_job_held_and_delayed_waits_for_both")
def held_jobs_crowd_the_sweep() -> None:
    """Jobs that cannot proceed are due at every sweep, and leave no capacity for others."""
    replace_sql("due", "AND held = 0", "")


# -- keys


@caught_by(SQLITE + "TestUniqueness::test_a_job_holds_its_key_through_all_its_attempts[outcome0]")
def a_key_is_free_while_its_job_runs() -> None:
    """A unique job can be enqueued again as soon as it has started."""
    replace_sql("active_by_key", "'queued', 'running', 'retrying'", "'queued', 'retrying'")


@caught_by(SQLITE + "TestUniqueness::test_a_key_is_free_again_once_its_job_is_final[succeeded]")
def a_key_is_never_free_again() -> None:
    """The lock of a unique job outlives the job: its key can never be used again."""
    replace_sql(
        "active_by_key", "'running', 'retrying'", "'running', 'retrying', 'succeeded', 'failed'"
    )


@caught_by(SQLITE + "TestEnqueue::test_owners_do_not_share_request_ids")
def a_request_id_is_shared_by_all_owners() -> None:
    """Two customers that send the same idempotency key share one job."""
    replace_sql("job_by_request", "owner = ?", "? IS NOT NULL")


@caught_by(SQLITE + "TestEnqueue::test_every_request_id_has_its_own_job")
def any_request_id_matches() -> None:
    """A customer's second request returns the job of the first."""
    replace_sql("job_by_request", "request_id = ?", "? IS NOT NULL")


# -- retention


@caught_by(SQLITE + "TestRetention::test_retention_counts_from_the_end_of_a_job")
def retention_counts_from_the_enqueue() -> None:
    """A job that ran for a month is deleted at its end, and its result cannot be read."""
    replace_sql("past_retention", "ended_at <= ?", "created_at <= ?")


@caught_by(SQLITE + "TestRetention::test_an_active_job_is_never_pruned_however_old")
def long_waiting_jobs_are_deleted() -> None:
    """A job that is queued for longer than the retention time is silently deleted."""
    replace_sql(
        "past_retention",
        "state = ? AND ended_at IS NOT NULL AND ended_at",
        "? <> '' AND created_at",
    )


# -- maintenance and paused queues


@caught_by(SQLITE + "TestMaintenance::test_a_flood_of_expired_leases_does_not_delay_a_due_job")
def expired_leases_fill_the_limit_of_a_sweep() -> None:
    """One limit for all maintenance: after an outage, no delayed job is queued for minutes."""
    due = maintenance.due

    def planted(connection: apsw.Connection, now: Instant, limit: int) -> list[JobRow]:
        return due(connection, now, limit)[:limit]

    swap(maintenance, "due", planted)


@caught_by(SQLITE + "TestWakeup::test_a_resumed_queue_wakes_a_wait", waits=True)
def a_resumed_queue_wakes_no_worker() -> None:
    """Jobs of a resumed queue wait for the next poll of a worker."""
    swap(records, "PAUSED", "another kind")
