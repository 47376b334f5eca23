"""Mistakes in SQLite's statements: one condition dropped at a time."""

from __future__ import annotations

import re

from tests.planted_bugs.bug import caught_by

from windlass.stores.sqlite.queries import SQL

SQLITE = "tests/stores/test_sqlite.py::"


def spoil(query: str, was: str, now: str) -> None:
    """Change a statement, and free it of indexes that would no longer fit."""
    text: str = getattr(SQL, query)
    if was not in text:
        raise LookupError(f"{was!r} is not in the query {query}: {text}")
    object.__setattr__(SQL, query, re.sub(r"INDEXED BY \w+", "", text.replace(was, now)))


# -- claim


@caught_by(SQLITE + "TestClaiming::test_a_running_job_is_not_handed_out_again")
def a_claim_takes_what_runs() -> None:
    """A job that somebody runs is handed out again."""
    spoil("claim", "state = 'queued'", "state IN ('queued', 'running')")


@caught_by(SQLITE + "TestClaiming::test_the_fence_grows_by_one_with_every_claim")
def a_claim_does_not_raise_the_fence() -> None:
    """All attempts of a job have one fence: an outside system cannot tell a ghost's write."""
    spoil("claim", "fence = fence + 1", "fence = max(fence, 1)")


@caught_by(
    SQLITE + "TestLeases::test_a_ghosts_settle_is_stale_while_the_next_worker_runs_it[success]"
)
def a_claim_leaves_the_lease_as_it_was() -> None:
    """Neither fence nor token change with the holder: the last one's settle fits the next one's."""
    spoil("claim", "fence = fence + 1", "fence = max(fence, 1)")
    spoil("claim", "token = :token", "token = coalesce(token, :token)")


@caught_by(SQLITE + "TestClaiming::test_an_expired_job_is_never_handed_out")
def a_claim_takes_what_has_expired() -> None:
    """A job that should have begun by noon begins in the evening."""
    spoil("claim", "expires_at > :now", "expires_at > 0")


@caught_by(SQLITE + "TestClaiming::test_a_repeat_does_not_answer_what_is_already_settled")
def a_repeated_claim_brings_back_what_is_done() -> None:
    """Whoever repeats a claim is given jobs again that it has settled by then."""
    spoil("claimed_by", "state = 'running' AND", "")


@caught_by(SQLITE + "TestInstants::"
           "test_the_order_holds_across_attempts_when_the_clock_steps_back")  # fmt: skip
def instants_follow_a_clock_that_steps_back() -> None:
    """A job starts before it was queued, after the machine's clock was set back."""
    spoil("claim", "max(:now, updated_at)", ":now")


# -- extend


@caught_by(SQLITE + "TestLeases::test_only_the_holders_own_lease_can_be_extended")
def an_extension_asks_for_no_fence() -> None:
    """The heartbeat of an attempt that is over keeps alive the one that came after it."""
    spoil("extend", "fence = ?", "? >= 0")


@caught_by(SQLITE + "TestLeases::test_only_the_holders_own_lease_can_be_extended")
def an_extension_asks_for_no_token() -> None:
    """Whoever knows the number of an attempt can keep its lease."""
    spoil("extend", "token = ?", "? IS NOT NULL")


@caught_by(SQLITE + "TestLeases::test_a_lease_ends_with_its_attempt")
def an_extension_asks_for_no_running_job() -> None:
    """A heartbeat that comes after the end of its attempt is told that all is well."""
    spoil("extend", "state = 'running' AND", "")
    spoil("extend", "max(lease_until, ?)", "max(coalesce(lease_until, 0), ?)")


@caught_by(SQLITE + "TestLeases::test_a_ghost_cannot_extend[False]")
def an_extension_revives_a_lease() -> None:
    """A worker that was given up comes back, extends by the job's id, and has it again."""
    spoil("extend", "SET lease_until", "SET state = 'running', lease_until")
    spoil("extend", "state = 'running' AND fence = ? AND token = ?", "? >= 0 AND ? IS NOT NULL")


@caught_by(SQLITE + "TestLeases::test_an_extension_never_shortens_a_lease")
def an_extension_shortens_a_lease() -> None:
    """A slow heartbeat takes back what a later one gave."""
    spoil("extend", "max(lease_until, ?)", "?")


# -- settle, the quick way


@caught_by(
    SQLITE + "TestSettling::test_a_forged_lease_settles_nothing_in_a_call_of_its_own[success]"
)
def a_success_asks_for_no_fence() -> None:
    """The quick way of settling knows whose claim it was, but not which."""
    spoil("succeed", "fence = ?4", "?4 IS NOT NULL")


@caught_by(
    SQLITE + "TestSettling::test_a_forged_lease_settles_nothing_in_a_call_of_its_own[success]"
)
def a_success_asks_for_no_token() -> None:
    """The quick way of settling goes by the id and the number of the attempt."""
    spoil("succeed", "+token = ?5", "?5 IS NOT NULL")


@caught_by(SQLITE + "TestSettling::test_a_repeated_settle_is_answered_as_the_first[success]")
def a_success_asks_for_no_running_job() -> None:
    """A settle that is repeated is made twice, and is counted twice."""
    spoil("succeed", "state = 'running' AND", "")


@caught_by(SQLITE + "TestCancel::test_an_accepted_cancel_wins_over_every_outcome[success]")
def a_success_overrules_a_cancel() -> None:
    """Somebody was told that the job will be canceled, and it succeeds."""
    spoil("succeed", "AND cancel_at IS NULL", "")


@caught_by(
    SQLITE + "TestSettling::test_a_repeated_settle_is_told_from_those_of_other_attempts",
)
def a_repeat_is_compared_with_the_first_attempt() -> None:
    """A worker repeats a settle whose answer was lost, and is told that it came too late."""
    spoil("past_attempt", "fence = ?", "? > 0")


# -- rescue


@caught_by(SQLITE + "TestLeases::test_a_lease_that_is_extended_in_time_is_never_lost")
def a_rescue_does_not_look_at_the_lease() -> None:
    """Whatever runs is taken for lost."""
    spoil("expired", "lease_until <= ?", "? > 0")


@caught_by(SQLITE + "TestTiming::test_a_job_held_and_delayed_waits_for_both")
def held_jobs_crowd_the_sweep() -> None:
    """Jobs that cannot go on are named as due at every sweep, and leave no room for the others."""
    spoil("due", "AND held = 0", "")


# -- keys


@caught_by(SQLITE + "TestUniqueness::test_a_job_holds_its_key_through_all_its_attempts[outcome0]")
def a_key_is_free_while_its_job_runs() -> None:
    """A unique job may be enqueued again as soon as it has begun."""
    spoil("active_by_key", "'queued', 'running', 'retrying'", "'queued', 'retrying'")


@caught_by(SQLITE + "TestUniqueness::test_a_key_is_free_again_once_its_job_is_final[succeeded]")
def a_key_is_never_free_again() -> None:
    """The lock of a unique job outlives the job, and nothing with its key is ever run again."""
    spoil("active_by_key", "'running', 'retrying'", "'running', 'retrying', 'succeeded', 'failed'")


@caught_by(SQLITE + "TestEnqueue::test_owners_do_not_share_request_ids")
def a_request_id_is_everybodys() -> None:
    """Two customers who send the same idempotency key share one job."""
    spoil("job_by_request", "owner = ?", "? IS NOT NULL")


@caught_by(SQLITE + "TestEnqueue::test_every_request_id_has_a_job_of_its_own")
def any_request_id_will_do() -> None:
    """A customer's second request is answered with the job of the first."""
    spoil("job_by_request", "request_id = ?", "? IS NOT NULL")


# -- keeping


@caught_by(SQLITE + "TestRetention::test_the_time_counts_from_the_end_not_from_the_beginning")
def keeping_counts_from_the_enqueue() -> None:
    """A job that ran for a month is deleted when it ends, and nobody can read its result."""
    spoil("past_keeping", "ended_at <= ?", "created_at <= ?")


@caught_by(SQLITE + "TestRetention::test_an_active_job_is_never_pruned_however_old")
def what_waits_too_long_is_deleted() -> None:
    """A job that stays in line for longer than its record is kept is gone without a word."""
    spoil(
        "past_keeping", "state = ? AND ended_at IS NOT NULL AND ended_at", "? <> '' AND created_at"
    )
