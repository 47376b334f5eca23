"""Schedules of a twin tick only when the test calls `tick`."""

from __future__ import annotations

import pytest

from windlass import NewJob, State, Windlass
from windlass.testing import twin


@pytest.fixture
def app() -> Windlass:
    app = Windlass("memory:")

    @app.schedule("0 3 * * *", name="nightly", kwargs={"country": "de"})
    @app.task(name="report")
    def report(country: str) -> str:
        return country

    return app


def test_a_schedule_ticks_by_the_clock_of_the_test(app: Windlass) -> None:
    with twin(app) as jobs:
        assert jobs.tick() == []
        jobs.clock.advance("3h")
        [job] = jobs.tick()
        assert jobs.arguments(job) == {"country": "de"}
        assert jobs.tick() == []
        jobs.drain()
        assert job.result() == "de"
        jobs.clock.advance("1d")
        assert [job.row.headers["schedule-tick"] for job in jobs.tick()] == ["2026-01-02T03:00:00Z"]


def test_a_drain_does_not_tick(app: Windlass) -> None:
    with twin(app) as jobs:
        app.schedules.run("nightly")
        jobs.clock.advance("2d")
        assert jobs.drain(until_empty=True) == {State.SUCCEEDED: 1}


async def test_atick_works_in_a_running_event_loop(app: Windlass) -> None:
    with twin(app) as jobs:
        jobs.clock.advance("3h")
        assert len(await jobs.atick()) == 1


def test_in_inline_mode_a_tick_runs_its_job_to_the_end(app: Windlass) -> None:
    with twin(app) as jobs, jobs.inline():
        jobs.clock.advance("3h")
        [job] = jobs.tick()
        assert job.state is State.SUCCEEDED


def test_middleware_gets_the_jobs_of_ticks(app: Windlass) -> None:
    seen: list[str] = []

    @app.middleware
    def watch(new: NewJob) -> NewJob:
        seen.append(new.headers["schedule-tick"])
        return new

    with twin(app) as jobs:
        jobs.clock.advance("3h")
        jobs.tick()
    assert seen == ["2026-01-01T03:00:00Z"]


def test_schedules_of_a_twin_do_not_reach_the_real_store(app: Windlass) -> None:
    with twin(app):
        assert [one.name for one in app.schedules.list()] == ["nightly"]
    assert app.schedules.list() == []
    app.close()
