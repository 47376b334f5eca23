"""A worker as others see it, and when it is deaf."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.factories import NOW

from windlass.core.clock import SECOND
from windlass.core.worker_presence import DEAF_POLLS, DEAF_SECONDS, LiveWorker, Readiness, deafness


def worker(ago: float | None, *, room: float | None = 3600, **over: Any) -> LiveWorker:
    """Its last claim was answered so long ago; so long it has had room."""
    facts: dict[str, Any] = {
        "name": "w", "host": "h", "pid": 7, "version": "1", "queues": {"default": 2},
        "tasks": ("mail.send",), "started_at": NOW - 7200 * SECOND, "seen_at": NOW, "free": 2,
        "last_claim_at": None if ago is None else NOW - round(ago * SECOND),
        "room_since": None if room is None else NOW - round(room * SECOND),
    }  # fmt: skip
    return LiveWorker(**facts | over)


def test_it_is_deaf_when_it_has_room_and_was_not_answered_for_many_polls() -> None:
    assert not worker(0.5).deaf
    assert not worker(DEAF_POLLS * 1.0).deaf
    assert worker(DEAF_POLLS * 1.0 + 1).deaf
    assert not worker(DEAF_POLLS * 1.0 + 1, poll=5.0).deaf
    assert worker(DEAF_POLLS * 5.0 + 1, poll=5.0).deaf


def test_one_that_polls_quickly_is_given_time_all_the_same() -> None:
    assert not worker(DEAF_SECONDS, poll=0.01).deaf
    assert worker(DEAF_SECONDS + 0.1, poll=0.01).deaf


def test_one_that_never_had_an_answer_is_deaf_when_it_has_lived_for_long() -> None:
    assert worker(None).deaf
    assert not worker(None, started_at=NOW - SECOND, room=1).deaf


def test_one_without_room_or_that_was_told_to_stop_is_not_deaf() -> None:
    assert not worker(3600, room=None).deaf
    assert not worker(3600, room=1).deaf  # room came up just now
    stopping = worker(3600, stopping=True)
    assert (stopping.deaf, stopping.takes_jobs) == (False, False)
    assert (worker(1).takes_jobs, worker(3600).takes_jobs) == (True, False)


def test_readiness_names_those_that_are_deaf_and_what_to_do() -> None:
    assert Readiness(deafness([worker(1), worker(None, room=None)])).ready
    [problem] = Readiness(deafness([worker(1), worker(60, name="bad")])).problems
    assert problem == (
        "worker bad (pid 7 on h) is deaf: it has 2 free slots, and no claim of it was answered for "
        "60 s; restart it"
    )


@pytest.mark.parametrize("ago", [None, 1.0, 60.0])
def test_what_is_written_is_read_back(ago: float | None) -> None:
    assert LiveWorker.decode(worker(ago).encode()) == worker(ago)


def test_the_record_of_another_version_can_be_read() -> None:
    old = worker(1).encode().replace(b'"free":2,', b"").replace(b'"poll":1.0,', b'"later":[1],')
    assert (LiveWorker.decode(old).free, LiveWorker.decode(old).poll) == (0, 1.0)
