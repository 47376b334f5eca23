"""A loop that keeps failing logs each error once."""

from __future__ import annotations

import pytest
from tests.worker.spy_store import SpyStore
from tests.worker.workers import run_burst

from windlass import Context, Windlass
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.state import State
from windlass.worker.loops.outage_log import MAX_MESSAGES, RECOVERY_TIME, REPEAT_INTERVAL, OutageLog


class FakeClock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def unavailable(message: str = "unavailable") -> StoreUnavailableError:
    return StoreUnavailableError(message)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def outages(clock: FakeClock) -> OutageLog:
    return OutageLog("Claiming jobs", clock=clock)


def test_an_error_and_the_recovery_are_logged_once(
    outages: OutageLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.time in (0.0, 0.25, 0.5, 3.0):
        outages.failed(unavailable())
    outages.failed(unavailable("starting"))
    outages.failed(unavailable())
    for clock.time in (4.0, 5.0, 3.0 + RECOVERY_TIME, 4.0 + RECOVERY_TIME, 5.0 + RECOVERY_TIME):
        outages.succeeded()

    assert caplog.messages == [
        "Claiming jobs failed; retrying: unavailable",
        "Claiming jobs failed; retrying: starting",
        "Claiming jobs recovered after 4.0 s",
    ]


def test_a_lasting_outage_is_logged_again_and_a_new_one_at_once(
    outages: OutageLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.time in (0.0, REPEAT_INTERVAL - 1, REPEAT_INTERVAL, REPEAT_INTERVAL + 1):
        outages.failed(unavailable(), "Fetching more")
    assert caplog.messages == ["Fetching more failed; retrying: unavailable"] * 2
    clock.time += RECOVERY_TIME
    outages.succeeded()
    caplog.clear()
    outages.failed(unavailable())
    assert caplog.messages == ["Claiming jobs failed; retrying: unavailable"]


def test_alternating_failures_and_successes_do_not_fill_the_log(
    outages: OutageLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    minutes = 10
    while clock.time < minutes * REPEAT_INTERVAL:
        outages.failed(unavailable())
        clock.time += 0.25
        outages.succeeded()
        clock.time += 0.25
    assert caplog.messages == ["Claiming jobs failed; retrying: unavailable"] * minutes
    clock.time += RECOVERY_TIME
    outages.succeeded()
    assert caplog.messages[minutes:] == ["Claiming jobs recovered after 599.8 s"]


def test_texts_that_always_differ_fill_neither_log_nor_memory(
    outages: OutageLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        clock.time = number * REPEAT_INTERVAL / 1000
        outages.failed(unavailable(f"port {number} is closed"))
    assert len(caplog.messages) == MAX_MESSAGES
    clock.time = REPEAT_INTERVAL + 1
    outages.failed(unavailable("another"))
    assert caplog.messages[MAX_MESSAGES:] == ["Claiming jobs failed; retrying: another"]
    assert len(outages._logged) < MAX_MESSAGES


def test_a_rare_operation_logs_the_old_recovery_before_a_new_outage(
    outages: OutageLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed(unavailable())
    clock.time = 0.5
    outages.succeeded()
    clock.time = 10 * REPEAT_INTERVAL
    outages.failed(unavailable())
    assert caplog.messages == [
        "Claiming jobs failed; retrying: unavailable",
        "Claiming jobs recovered after 0.5 s",
        "Claiming jobs failed; retrying: unavailable",
    ]


def test_log_recovery_logs_without_waiting(
    outages: OutageLog, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    outages.log_recovery()
    outages.failed(unavailable())
    outages.log_recovery()  # the outage still lasts
    clock.time = 0.5
    outages.succeeded()
    outages.log_recovery()
    outages.log_recovery()
    assert caplog.messages[1:] == ["Claiming jobs recovered after 0.5 s"]


async def test_steps_of_many_jobs_log_one_outage_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass("memory:")
    failures_left = {"checkpoints": 7}

    def fail(verb: str) -> None:
        if failures_left.get(verb):
            failures_left[verb] -= 1
            raise unavailable()

    async def piece() -> int:
        return 1

    @app.task
    async def stepped(ctx: Context) -> int:
        return await ctx.astep("piece", piece)

    jobs = [await stepped.aenqueue() for _ in range(5)]
    await run_burst(app, SpyStore(app.client().store.twin(), fail))
    assert {(await job.arefresh()).state for job in jobs} == {State.SUCCEEDED}
    assert not failures_left["checkpoints"]
    assert sum("a step of job" in line for line in caplog.messages) == 1
    assert sum("recovered" in line for line in caplog.messages) <= 1
    await app.aclose()
