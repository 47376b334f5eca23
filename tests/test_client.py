"""`Client`: jobs from calls and options, and errors from results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from windlass.client import Client, accepted_row, retry_request
from windlass.core.clock import from_datetime
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Failed, Succeeded
from windlass.core.errors import ConflictError, InvalidArgumentError, NotFoundError
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.new_job import CORRELATION_ID, NewJob
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.job.row import JobRow, new_row
from windlass.core.job.state import State
from windlass.options import EnqueueOptions, new_job
from windlass.store import AttemptRecords
from windlass.stores.memory import MemoryStore
from windlass.task_spec import TaskOptions, TaskSpec
from windlass.testing.clock import START, VirtualClock
from windlass.testing.factories import claim_all, claim_one, make_job, settle_one

ID = UUID("018f2f6e-0000-7000-8000-000000000001")


def add(a: int, b: int = 0) -> int:
    return a + b


POLICY = Policy(backoff=fixed(2), max_retries=7)
ADD = TaskSpec("add", add, TaskOptions(queue="sums", priority=3, policy=POLICY, lease=9.0))


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with MemoryStore(clock=VirtualClock()) as store:
        yield Client(store)


def prepare(client: Client, *args: Any, **options: Any) -> NewJob:
    return new_job(ADD, args, {}, EnqueueOptions(**options), client.codec)


async def enqueue(client: Client, *args: Any, **options: Any) -> JobRow:
    [result] = await client.enqueue([prepare(client, *args, **options)])
    return accepted_row(result)


# -- prepare


async def test_a_job_has_the_options_of_its_task(client: Client) -> None:
    job = prepare(client, 1)
    assert (job.task, job.queue, job.priority) == ("add", "sums", 3)
    assert (job.policy, job.lease) == (POLICY, 9.0)
    assert job.payload == b'{"a":1}'
    assert job.digest is None


async def test_options_of_a_job_override_those_of_its_task(client: Client) -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    job = prepare(
        client,
        1,
        id=ID,
        queue="fast",
        priority=0,
        run_at=at,
        owner="ada",
        team="maths",
        tags=("a",),
        unique_key="k",
    )
    assert (job.id, job.queue, job.priority) == (ID, "fast", 0)
    assert job.run_at == from_datetime(at)
    assert (job.owner, job.team, job.tags, job.unique_key) == ("ada", "maths", ("a",), "k")


ALL_OPTIONS: dict[str, Any] = {
    "id": ID, "queue": "fast", "priority": 9, "delay": 2.0, "hold": True, "expires_in": 60.0,
    "run_at": datetime(2026, 5, 1, tzinfo=UTC), "request_id": "r", "unique_key": "u",
    "debounce": True, "owner": "ada", "team": "maths", "tags": ("a",), "headers": {"x": "y"},
    "depends_on": (ID,), "on_parent": OnParent.RUN, "flow_id": ID, "limit_key": "l",
}  # fmt: skip


async def test_every_option_is_a_field_of_the_job(client: Client) -> None:
    assert ALL_OPTIONS.keys() == set(EnqueueOptions.__slots__), "set the new option above"
    job = prepare(client, 1, **ALL_OPTIONS)
    expected = ALL_OPTIONS | {"run_at": from_datetime(ALL_OPTIONS["run_at"])}
    assert {name: getattr(job, name) for name in expected} == expected


async def test_a_retry_keeps_every_field_that_is_not_of_one_attempt() -> None:
    new = NewJob(task="add", lease=3.0, **{**ALL_OPTIONS, "run_at": None}, policy=POLICY)
    row = new_row(new, START, 1)
    again = retry_request(row, resume=True)
    own = {
        "id", "request_id", "retry_of", "resume", "headers", "delay", "hold", "expires_in",
        "debounce", "depends_on",
    }  # fmt: skip
    changed = {
        item.name for item in fields(NewJob) if getattr(again, item.name) != getattr(new, item.name)
    }
    assert changed == own
    assert again.headers == {"x": "y", CORRELATION_ID: str(ID)}
    assert (again.retry_of, again.resume) == (ID, True)


async def test_a_job_has_a_new_correlation_id_or_the_given_one(client: Client) -> None:
    own = await enqueue(client, 1)
    assert own.correlation_id == str(own.id)
    given = await enqueue(client, 1, headers={CORRELATION_ID: "trace-1", "x": "y"})
    assert given.correlation_id == "trace-1"
    assert given.headers == {CORRELATION_ID: "trace-1", "x": "y"}


async def test_jobs_with_an_id_or_request_id_have_a_digest(client: Client) -> None:
    same = [prepare(client, 1, request_id="r").digest for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] is not None
    assert prepare(client, 2, request_id="r").digest != same[0]
    assert prepare(client, 1, id=ID).digest == same[0]


async def test_a_time_without_a_zone_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="time zone"):
        prepare(client, 1, run_at=datetime(2026, 5, 1))  # noqa: DTZ001 - the point


# -- results and errors


async def test_an_unknown_job_is_not_found(client: Client) -> None:
    for call in (client.get, client.cancel, client.submit):
        with pytest.raises(NotFoundError, match=str(ID)):
            await call(ID)


async def test_waiting_for_an_unknown_job_ends_at_once(client: Client) -> None:
    with pytest.raises(NotFoundError, match=str(ID)):
        await client.wait(ID)


async def test_a_submit_sets_queued_at(client: Client) -> None:
    row = await enqueue(client, 1, hold=True)
    assert row.state is State.CREATED
    assert await client.submit(row.id) is State.QUEUED
    assert await client.submit(row.id) is State.QUEUED  # a repeat has the same result


async def test_only_a_held_job_can_be_submitted(client: Client) -> None:
    row = await enqueue(client, 1)
    with pytest.raises(ConflictError, match=f"job {row.id} is queued and cannot be submitted"):
        await client.submit(row.id)


async def test_a_waiting_job_is_canceled_at_once(client: Client) -> None:
    row = await enqueue(client, 1)
    assert await client.cancel(row.id, by="ada", reason="wrong") is State.CANCELED
    ended = await client.wait(row.id)
    assert (ended.cancel_by, ended.cancel_reason) == ("ada", "wrong")


async def test_the_cancel_of_a_running_job_is_requested(client: Client) -> None:
    await enqueue(client, 1)
    running = await claim_one(client.store, "sums")
    assert await client.cancel(running.id) is State.RUNNING
    assert (await client.get(running.id)).cancel_requested


async def test_a_finished_job_cannot_be_canceled(client: Client) -> None:
    await enqueue(client, 1)
    row = await claim_one(client.store, "sums")
    await settle_one(client.store, row, Succeeded())
    with pytest.raises(ConflictError, match="is succeeded and cannot be canceled"):
        await client.cancel(row.id)


async def test_events_can_be_followed_from_any_number(client: Client) -> None:
    await enqueue(client, 1)
    row = await claim_one(client.store, "sums")
    await settle_one(client.store, row, Succeeded())
    every = [event async for event in client.events(row.id)]
    assert [event.seq for event in every] == [1, 2, 3, 4]
    assert every[-1].type is EventType.JOB_COMPLETED
    assert [event async for event in client.events(row.id, after=2)] == every[2:]


async def test_a_refused_job_raises_the_error_of_its_result(client: Client) -> None:
    [result] = await client.enqueue([make_job(queue="")])
    assert result.status is EnqueueStatus.REFUSED
    with pytest.raises(InvalidArgumentError, match="queue"):
        accepted_row(result)


async def test_an_id_with_other_arguments_is_a_conflict(client: Client) -> None:
    await enqueue(client, 1, id=ID)
    assert (await enqueue(client, 1, id=ID)).id == ID
    with pytest.raises(ConflictError, match=str(ID)):
        await enqueue(client, 2, id=ID)


async def test_the_store_converts_delays_to_instants(client: Client) -> None:
    row = await enqueue(client, 1, delay=60.0, expires_in=90.0)
    assert row.due_at == START + 60_000_000
    assert row.expires_at == START + 90_000_000
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1)
    assert (await enqueue(client, 1, id=uuid7(), run_at=at)).due_at == from_datetime(at)


# -- retry and resume


async def fail(client: Client, row: JobRow, *, step: str | None = None) -> None:
    job = await claim_one(client.store, row.queue)
    if step is not None:
        record = Record(n=1, type=EventType.STEP_STATUS, step=step, checkpoint=b"1")
        await client.store.record([AttemptRecords(job.lease, [record])])
    failure = Failure(code="broken", kind=ErrorKind.TERMINAL)
    await settle_one(client.store, job, Failed(failure=failure))


async def test_a_retry_is_a_new_job_that_refers_to_the_first(client: Client) -> None:
    row = await enqueue(
        client, 1, owner="ann", team="red", tags=("x",), unique_key="k", request_id="r",
        headers={"trace": "t"}, priority=9,
    )  # fmt: skip
    await fail(client, row)
    new = accepted_row(await client.retry(row.id))
    same = ("task", "queue", "payload", "priority", "policy", "lease_seconds", "owner", "team",
            "tags", "correlation_id", "unique_key")  # fmt: skip
    for name in same:
        assert getattr(new, name) == getattr(row, name), name
    assert new.id != row.id
    assert new.headers["trace"] == "t"
    assert (new.retry_of, new.request_id, new.state) == (row.id, None, State.QUEUED)
    assert (await client.get(row.id)).retried_as == new.id


async def test_a_second_retry_returns_the_unfinished_first_one(client: Client) -> None:
    row = await enqueue(client, 1)
    await fail(client, row)
    first, second = await client.retry(row.id), await client.retry(row.id)
    assert second.status is EnqueueStatus.DUPLICATE
    assert accepted_row(second).id == accepted_row(first).id


async def test_an_unfinished_or_unknown_job_is_not_retried(client: Client) -> None:
    row = await enqueue(client, 1)
    with pytest.raises(ConflictError, match="only a finished job can be retried"):
        await client.retry(row.id)
    with pytest.raises(ConflictError, match="only a finished job can be resumed"):
        await client.resume(row.id)
    with pytest.raises(NotFoundError):
        await client.retry(ID)


async def test_a_resumed_job_has_the_steps_of_the_first(client: Client) -> None:
    row = await enqueue(client, 1)
    await fail(client, row, step="voice")
    new = accepted_row(await client.resume(row.id))
    [kept] = await client.store.checkpoints([new.id])
    assert kept["voice"].value == b"1"
    assert new.retry_of == row.id


async def test_a_retried_job_starts_without_the_steps(client: Client) -> None:
    row = await enqueue(client, 1)
    await fail(client, row, step="voice")
    new = accepted_row(await client.retry(row.id))
    assert await client.store.checkpoints([new.id]) == [{}]


async def test_a_job_without_a_completed_step_is_not_resumed(client: Client) -> None:
    row = await enqueue(client, 1)
    await fail(client, row)
    with pytest.raises(
        ConflictError, match="has no completed step to resume from; retry it instead"
    ):
        await client.resume(row.id)


# -- queues


async def test_a_queue_is_paused_until_it_is_resumed(client: Client) -> None:
    await client.enqueue([make_job(queue="mail"), make_job(queue="film")])
    await client.pause(["mail", "film"])
    assert [queue.paused for queue in await client.queues()] == [True, True]
    assert await claim_all(client.store, "mail", "film") == []
    await client.pause(["mail"], paused=False)
    assert [row.queue for row in await claim_all(client.store, "mail", "film")] == ["mail"]


async def test_a_cancel_with_an_invalid_reason_is_refused_with_that_error(client: Client) -> None:
    row = await enqueue(client, 1, 2)
    with pytest.raises(InvalidArgumentError, match="the reason has"):
        await client.cancel(row.id, reason="x" * 100_000)
