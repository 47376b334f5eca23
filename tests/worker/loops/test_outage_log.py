"""A loop that fails and fails again says so once."""

from __future__ import annotations

import pytest
from tests.worker.factories import Spy, work_off

from windlass import Context, Windlass
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.state import State
from windlass.worker.loops.outage_log import AGAIN, MANY, QUIET, Trouble


class Hours:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def away(why: str = "away") -> StoreUnavailableError:
    return StoreUnavailableError(why)


@pytest.fixture
def clock() -> Hours:
    return Hours()


@pytest.fixture
def trouble(clock: Hours) -> Trouble:
    return Trouble("claiming", clock=clock)


def test_the_same_thing_is_said_once_and_its_end_once(
    trouble: Trouble, clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.time in (0.0, 0.25, 0.5, 3.0):
        trouble.met(away())
    trouble.met(away("starting"))
    trouble.met(away())
    for clock.time in (4.0, 5.0, 3.0 + QUIET, 4.0 + QUIET, 5.0 + QUIET):
        trouble.over()

    assert caplog.messages == [
        "claiming failed, trying again: away",
        "claiming failed, trying again: starting",
        "claiming works again, after 4.0 s",
    ]


def test_what_lasts_is_said_again_after_a_while_and_new_trouble_at_once(
    trouble: Trouble, clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.time in (0.0, AGAIN - 1, AGAIN, AGAIN + 1):
        trouble.met(away(), "claiming much")
    assert caplog.messages == ["claiming much failed, trying again: away"] * 2
    clock.time += QUIET
    trouble.over()
    caplog.clear()
    trouble.met(away())
    assert caplog.messages == ["claiming failed, trying again: away"]


def test_failures_and_successes_that_take_turns_do_not_fill_the_log(
    trouble: Trouble, clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    minutes = 10
    while clock.time < minutes * AGAIN:
        trouble.met(away())
        clock.time += 0.25
        trouble.over()
        clock.time += 0.25
    assert caplog.messages == ["claiming failed, trying again: away"] * minutes
    clock.time += QUIET
    trouble.over()
    assert caplog.messages[minutes:] == ["claiming works again, after 599.8 s"]


def test_texts_that_differ_each_time_neither_fill_the_log_nor_the_memory(
    trouble: Trouble, clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        clock.time = number * AGAIN / 1000
        trouble.met(away(f"port {number} is closed"))
    assert len(caplog.messages) == MANY
    clock.time = AGAIN + 1
    trouble.met(away("another"))
    assert caplog.messages[MANY:] == ["claiming failed, trying again: another"]
    assert len(trouble._said) < MANY


def test_what_is_tried_seldom_tells_of_its_old_end_before_its_new_trouble(
    trouble: Trouble, clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    trouble.met(away())
    clock.time = 0.5
    trouble.over()
    clock.time = 10 * AGAIN
    trouble.met(away())
    assert caplog.messages == [
        "claiming failed, trying again: away",
        "claiming works again, after 0.5 s",
        "claiming failed, trying again: away",
    ]


def test_what_is_not_tried_any_more_need_not_be_quiet_first(
    trouble: Trouble, clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    trouble.done()
    trouble.met(away())
    trouble.done()  # while it fails, it is not over
    clock.time = 0.5
    trouble.over()
    trouble.done()
    trouble.done()
    assert caplog.messages[1:] == ["claiming works again, after 0.5 s"]


async def test_the_steps_of_many_jobs_tell_of_one_trouble_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass("memory:")
    away_for = {"checkpoints": 7}

    def look(verb: str) -> None:
        if away_for.get(verb):
            away_for[verb] -= 1
            raise away()

    async def piece() -> int:
        return 1

    @app.task
    async def stepped(ctx: Context) -> int:
        return await ctx.astep("piece", piece)

    jobs = [await stepped.aenqueue() for _ in range(5)]
    await work_off(app, Spy(app.client().store.twin(), look))
    assert {(await job.arefresh()).state for job in jobs} == {State.SUCCEEDED}
    assert not away_for["checkpoints"]
    assert sum("a step of job" in line for line in caplog.messages) == 1
    assert sum("works again" in line for line in caplog.messages) <= 1
    await app.aclose()
