"""Assertions about enqueued jobs, and their error messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from windlass import Context, InvalidArgumentError, Windlass
from windlass.testing import Twin, twin


@dataclass
class Size:
    width: int
    height: int = 720


@pytest.fixture
def app() -> Iterator[Windlass]:
    app = Windlass("memory:")
    yield app
    app.close()


@pytest.fixture
def jobs(app: Windlass) -> Iterator[Twin]:
    with twin(app) as made:
        yield made


def transcode(ctx: Context, path: Path, size: Size, priority: str = "high") -> None:
    pass


def send(to: str) -> None:
    pass


def test_jobs_are_found_by_their_arguments_defaults_included(app: Windlass, jobs: Twin) -> None:
    task = app.task(transcode)
    first = task.enqueue(Path("a.mov"), Size(10))
    second = task.enqueue(Path("b.mov"), size=Size(10, 20))
    assert [job.id for job in jobs.assert_enqueued(task)] == [first.id, second.id]
    [found] = jobs.assert_enqueued(task, path=Path("b.mov"), size=Size(10, 20))
    assert found.id == second.id
    jobs.assert_enqueued(task, count=2, priority="high")
    jobs.assert_enqueued(task, count=1, path="a.mov")  # as it is stored, too
    jobs.assert_not_enqueued(task, size=Size(11))
    assert jobs.arguments(first) == {
        "path": Path("a.mov"),
        "size": Size(10, 720),
        "priority": "high",
    }


def test_jobs_are_found_by_their_options_also_after_they_ran(app: Windlass, jobs: Twin) -> None:
    task = app.task(send)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    task.options(delay="5m", tags=("urgent", "mail"), owner="ann", priority=4).enqueue("x")
    task.options(
        run_at=at,
        unique_key="k",
        expires_in="1h",
        request_id="r",
        headers={"trace": "t", "more": "m"},
    ).enqueue("y")
    for _ in range(2):
        jobs.assert_enqueued(task, count=1, delay=300, owner="ann", priority=4)
        jobs.assert_enqueued(task, count=1, delay=timedelta(minutes=5), tags="mail")
        jobs.assert_enqueued(task, count=1, tags=["mail", "urgent"], to="x")
        jobs.assert_enqueued(task, count=1, run_at=at, unique_key="k", request_id="r")
        jobs.assert_enqueued(task, count=1, expires_in="1h", queue="default", hold=False, to="y")
        jobs.assert_enqueued(task, count=1, headers={"trace": "t"})
        jobs.assert_not_enqueued(task, tags=["mail", "other"])
        jobs.assert_not_enqueued(task, hold=True)
        jobs.drain(until_empty=True)


def test_children_of_a_task_count_as_enqueued_and_duplicates_do_not(
    app: Windlass, jobs: Twin
) -> None:
    leaf = app.task(send)

    @app.task
    def root(ctx: Context) -> None:
        ctx.then(leaf.options(delay="1h"), "then")
        ctx.enqueue(leaf, "at once")

    root.enqueue()
    leaf.options(request_id="r").enqueue("twice")
    leaf.options(request_id="r").enqueue("twice")
    jobs.drain(until_empty=True)
    jobs.assert_enqueued(leaf, count=1, delay="1h")
    assert {jobs.arguments(job)["to"] for job in jobs.enqueued(leaf)} == {
        "then",
        "at once",
        "twice",
    }
    jobs.assert_enqueued(leaf, count=1, to="twice")
    assert len(jobs.enqueued()) == 4


def test_the_message_lists_the_enqueued_jobs(app: Windlass, jobs: Twin) -> None:
    task, other = app.task(send), app.task(transcode)
    other.enqueue(Path("a.mov"), Size(1))
    task.options(queue="mail").enqueue("ann")
    with pytest.raises(AssertionError) as caught:
        jobs.assert_enqueued(task, to="bob", queue="mail")
    problem, first, second = str(caught.value).splitlines()
    assert problem.endswith("send was enqueued with to='bob', queue='mail'; enqueued jobs:")
    assert first.endswith("send(to='ann') queue='mail' is queued")
    assert "transcode(path=" in second


def test_the_message_has_the_number_of_jobs(app: Windlass, jobs: Twin) -> None:
    task = app.task(send)
    with pytest.raises(AssertionError, match=r"no job of .*send was enqueued; nothing was"):
        jobs.assert_enqueued(task)
    task.enqueue("ann")
    with pytest.raises(AssertionError, match=r"1 job was enqueued of .*send, not 2"):
        jobs.assert_enqueued(task, count=2)
    with pytest.raises(AssertionError, match=r"1 job was enqueued of .*send with to='ann', not 0"):
        jobs.assert_not_enqueued(task, to="ann")


def test_an_unknown_name_is_an_error(app: Windlass, jobs: Twin) -> None:
    task = app.task(send)
    task.enqueue("ann")
    with pytest.raises(InvalidArgumentError, match=r"tto: neither an argument .* \(to\) nor an"):
        jobs.assert_enqueued(task, tto="ann")
    with pytest.raises(InvalidArgumentError, match="tto"):
        jobs.assert_not_enqueued(task, tto="ann")


def test_a_job_enqueued_by_an_alias_belongs_to_its_task(app: Windlass, jobs: Twin) -> None:
    old = Windlass("memory:")
    before = old.task(name="before")(send)
    now = app.task(name="now", aliases=["before"])(send)
    app.enqueue_many([before.new_job("ann")])
    jobs.assert_enqueued(now, to="ann")
    old.close()
