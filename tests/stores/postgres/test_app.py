"""An app on PostgreSQL: `Windlass("postgresql://…")`, sync and async, and the command line."""

from __future__ import annotations

import asyncio

import pytest
from typer.testing import CliRunner

from windlass import Context, Windlass
from windlass.cli import cli
from windlass.core.job.state import State


async def test_jobs_are_enqueued_run_followed_and_read(postgres_url: str) -> None:
    app = Windlass(postgres_url)

    @app.task
    async def double(ctx: Context, number: int) -> int:
        ctx.progress(50, "half way")
        if number == 13 and ctx.attempt == 1:
            raise ValueError("unlucky")
        return 2 * number

    worker = app.worker()
    running = asyncio.create_task(worker.run())
    jobs = [await double.aenqueue(number) for number in (1, 2, 13)]
    async with asyncio.timeout(60):
        assert [await job.aresult() for job in jobs] == [2, 4, 26]
        worker.stop()
        await running

    rows = await app.client().store.get([job.id for job in jobs])
    assert [row and (row.state, row.attempt) for row in rows] == [
        (State.SUCCEEDED, 1),
        (State.SUCCEEDED, 1),
        (State.SUCCEEDED, 2),
    ]
    await app.aclose()


def test_code_without_an_event_loop_enqueues_and_waits(postgres_url: str) -> None:
    app = Windlass(postgres_url)

    @app.task
    def noop() -> None: ...

    job = noop.enqueue()

    assert app.job(job.id).state is State.QUEUED
    app.close()


def test_an_app_works_in_successive_event_loops(postgres_url: str) -> None:
    """Each event loop has its own handle, and its connections close with it."""
    app = Windlass(postgres_url)

    @app.task
    async def noop() -> None: ...

    async def enqueue_and_wait() -> State:
        job = await noop.aenqueue()
        await app.client().store.wait(["default"], 0.01)
        return (await app.ajob(job.id)).state

    assert [asyncio.run(enqueue_and_wait()) for _ in range(3)] == [State.QUEUED] * 3
    app.close()


def test_the_command_line_migrates_lists_and_reports_errors(postgres_url: str) -> None:
    run = CliRunner().invoke
    assert run(cli, ["migrate", "--url", postgres_url]).output == "The schema is up to date\n"
    assert run(cli, ["jobs", "list", "--url", postgres_url, "--json"]).exit_code == 0

    lost = run(cli, ["jobs", "list", "--url", "postgresql://127.0.0.1:1/jobs"])

    assert lost.exit_code == 3
    assert "cannot be reached" in lost.output


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_without_the_driver_the_error_names_the_package(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.stores.driver_check.find_spec", lambda _: None)

    with pytest.raises(ValueError, match=r"pip install 'windlass\[postgres\]'"):
        Windlass(f"{scheme}://host/jobs")
