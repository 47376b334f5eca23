"""Presence records of workers, and unresponsive workers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.factories import NOW

from windlass.core.clock import SECOND
from windlass.core.worker_presence import (
    UNRESPONSIVE_POLLS,
    UNRESPONSIVE_SECONDS,
    LiveWorker,
    Readiness,
    unresponsive_problems,
)


def worker(ago: float | None, *, free_for: float | None = 3600, **overrides: Any) -> LiveWorker:
    """`ago`: seconds since its last claim; `free_for`: seconds since it has a free slot."""
    fields: dict[str, Any] = {
        "name": "w", "host": "h", "pid": 7, "version": "1", "queues": {"default": 2},
        "tasks": ("mail.send",), "started_at": NOW - 7200 * SECOND, "seen_at": NOW, "free": 2,
        "last_claim_at": None if ago is None else NOW - round(ago * SECOND),
        "free_since": None if free_for is None else NOW - round(free_for * SECOND),
    }  # fmt: skip
    return LiveWorker(**fields | overrides)


def test_a_worker_is_unresponsive_if_it_has_free_slots_and_no_answered_claim_for_many_polls() -> (
    None
):
    assert not worker(0.5).unresponsive
    assert not worker(UNRESPONSIVE_POLLS * 1.0).unresponsive
    assert worker(UNRESPONSIVE_POLLS * 1.0 + 1).unresponsive
    assert not worker(UNRESPONSIVE_POLLS * 1.0 + 1, poll_interval=5.0).unresponsive
    assert worker(UNRESPONSIVE_POLLS * 5.0 + 1, poll_interval=5.0).unresponsive


def test_a_worker_with_short_polls_is_unresponsive_only_after_the_minimum_time() -> None:
    assert not worker(UNRESPONSIVE_SECONDS, poll_interval=0.01).unresponsive
    assert worker(UNRESPONSIVE_SECONDS + 0.1, poll_interval=0.01).unresponsive


def test_a_worker_without_any_answered_claim_becomes_unresponsive() -> None:
    assert worker(None).unresponsive
    assert not worker(None, started_at=NOW - SECOND, free_for=1).unresponsive


def test_a_worker_without_free_slots_or_that_is_stopping_is_not_unresponsive() -> None:
    assert not worker(3600, free_for=None).unresponsive
    assert not worker(3600, free_for=1).unresponsive  # a slot became free just now
    stopping = worker(3600, stopping=True)
    assert (stopping.unresponsive, stopping.accepts_jobs) == (False, False)
    assert (worker(1).accepts_jobs, worker(3600).accepts_jobs) == (True, False)


def test_readiness_names_unresponsive_workers_and_what_to_do() -> None:
    assert Readiness(unresponsive_problems([worker(1), worker(None, free_for=None)])).ready
    [problem] = Readiness(unresponsive_problems([worker(1), worker(60, name="bad")])).problems
    assert problem == (
        "worker bad (pid 7 on h) is unresponsive: 2 free slots, but no jobs fetched for "
        "60 s; restart it"
    )


@pytest.mark.parametrize("ago", [None, 1.0, 60.0])
def test_a_worker_record_is_read_as_it_was_written(ago: float | None) -> None:
    assert LiveWorker.decode(worker(ago).encode()) == worker(ago)


def test_the_record_of_another_version_can_be_read() -> None:
    old = (
        worker(1)
        .encode()
        .replace(b'"free":2,', b"")
        .replace(b'"poll_interval":1.0,', b'"later":[1],')
    )
    assert (LiveWorker.decode(old).free, LiveWorker.decode(old).poll_interval) == (0, 1.0)
