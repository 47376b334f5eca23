"""Task groups, aliases of renamed tasks, and duplicate names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.worker.workers import run_burst

from windlass import ConfigurationError, Tasks, Windlass


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_the_tasks_of_an_included_group_are_enqueued_and_run(app: Windlass) -> None:
    tasks = Tasks()

    @tasks.task(queue="media", max_retries=0)
    async def double(number: int) -> int:
        return 2 * number

    app.include(tasks)
    job = await double.aenqueue(21)
    await run_burst(app, queues={"media": 1})
    assert await job.aresult() == 42
    assert job.row.policy.max_retries == 0


async def test_a_task_added_to_an_included_group_belongs_to_the_app(
    app: Windlass,
) -> None:
    tasks = Tasks()
    app.include(tasks)

    @tasks.task
    def late() -> str:
        return "here"

    job = await late.aenqueue()
    await run_burst(app)
    assert await job.aresult() == "here"


def test_a_task_of_a_group_without_an_app_can_be_called_but_not_enqueued() -> None:
    tasks = Tasks()

    @tasks.task(name="alone")
    def alone() -> str:
        return "called"

    assert alone() == "called"
    with pytest.raises(ConfigurationError, match=r"'alone'.*app\.include\(tasks\)"):
        alone.enqueue()


async def test_a_group_belongs_to_one_app_until_that_is_closed(app: Windlass) -> None:
    tasks = Tasks()

    @tasks.task
    def task() -> str:
        return "done"

    first = Windlass("memory:")
    first.include(tasks)
    with pytest.raises(ConfigurationError, match="already included in another app"):
        app.include(tasks)
    await first.aclose()
    app.include(tasks)
    job = await task.aenqueue()
    await run_burst(app)
    assert await job.aresult() == "done"


async def test_a_job_of_a_renamed_task_is_run_by_its_alias(app: Windlass) -> None:
    @app.task(name="old")
    def before() -> str:
        return "before"

    job = await before.aenqueue()
    newer = Windlass("memory:")

    @newer.task(name="new", aliases=["old"])
    def after() -> str:
        return "after"

    app.tasks = newer.tasks  # the next deploy, on the same store
    await run_burst(app)
    assert await job.aresult() == "after"
    assert [spec.name for spec in newer.tasks] == ["new"]
    await newer.aclose()


@pytest.mark.parametrize("aliases", [[], ["taken"]], ids=["name", "alias"])
def test_two_tasks_with_one_name_are_refused_with_both_locations(aliases: list[str]) -> None:
    tasks = Tasks()

    @tasks.task(name="taken")
    def one() -> None: ...

    with pytest.raises(ConfigurationError) as refused:

        @tasks.task(name="other" if aliases else "taken", aliases=aliases)
        def two() -> None: ...

    message = str(refused.value)
    assert "'taken'" in message
    assert message.count(f"{__file__}:") == 2
    assert "name=" in message


async def test_a_group_with_a_duplicate_task_name_is_not_included(app: Windlass) -> None:
    @app.task(name="taken")
    def one() -> None: ...

    tasks = Tasks()

    @tasks.task(name="free")
    def free() -> None: ...

    @tasks.task(name="taken")
    def two() -> None: ...

    with pytest.raises(ConfigurationError, match="two tasks are named 'taken'"):
        app.include(tasks)
    assert app.tasks.get("free") is None
    with pytest.raises(ConfigurationError, match="not included in an app"):
        await free.aenqueue()


def test_invalid_aliases_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="aliases is"):
        Tasks().task(aliases=[1])
