"""Enqueue: each job has its own result, in order, and repeats are harmless."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core import size_limits
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import ConflictError, TooLargeError
from windlass.core.job.retry_policy import MAX_DELAY, Delays, Policy
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    get_one,
    make_job,
    settle_one,
    start_one,
)

CREATED, DUPLICATE = EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE
CONFLICT, REFUSED = EnqueueStatus.CONFLICT, EnqueueStatus.REFUSED
NAN, INFINITE = float("nan"), float("inf")

BAD = {
    "a payload too large": {"payload": b"x" * (size_limits.MAX_BLOB + 1)},
    "no task": {"task": ""},
    "a task with too long a name": {"task": "t" * (size_limits.MAX_NAME + 1)},
    "no queue": {"queue": ""},
    "a queue with too long a name": {"queue": "q" * (size_limits.MAX_NAME + 1)},
    "an owner too long": {"owner": "o" * (size_limits.MAX_KEY + 1)},
    "a request id too long": {"request_id": "r" * (size_limits.MAX_KEY + 1)},
    "a unique key too long": {"unique_key": "k" * (size_limits.MAX_KEY + 1)},
    "too many tags": {"tags": tuple(f"tag-{n}" for n in range(size_limits.MAX_TAGS + 1))},
    "an empty tag": {"tags": ("",)},
    "headers too large": {"headers": {"note": "h" * size_limits.MAX_HEADERS}},
    "a priority beyond 32 bits": {"priority": size_limits.MAX_PRIORITY + 1},
    "a negative delay": {"delay": -1.0},
    "an endless delay": {"delay": INFINITE},
    "a delay that is not a number": {"delay": NAN},
    "a delay of more than ten years": {"delay": MAX_DELAY + 1},
    "an instant beyond 64 bits": {"run_at": 2**63},
    "a lease of zero": {"lease": 0.0},
    "an endless lease": {"lease": INFINITE},
    "a lease that is not a number": {"lease": NAN},
    "an expiry at once": {"expires_in": 0.0},
    "an endless expiry": {"expires_in": INFINITE},
    "an expiry that is not a number": {"expires_in": NAN},
    "an expiry beyond 64 bits": {"expires_at": 2**63},
    "a text that is not Unicode": {"owner": "\ud800"},
    "a tag that is not Unicode": {"tags": ("\udfff",)},
    "a header that is not Unicode": {"headers": {"note": "\ud800"}},
}


class TestEnqueue:
    async def test_a_new_job_is_stored_with_all_its_fields(
        self, store: Store, clock: VirtualClock
    ) -> None:
        new = make_job(
            task="mail.send",
            queue="mail",
            payload=b'{"to":"ada"}',
            priority=7,
            policy=Policy(
                backoff=Delays(delays=(60.0, 300.0)), max_retries=5, crash_cap=2, timeout=9.5
            ),
            lease=12.5,
            owner="ada",
            team="engines",
            tags=("urgent", "größer", "tag with spaces"),
            headers={"correlation-id": "c-1", "näme": "wért\n"},
            request_id="request-1",
            digest=b"\x00\xff",
            unique_key="key-1",
        )
        [answer] = await store.enqueue([new])
        row = await get_one(store, new.id)
        assert answer.status is CREATED
        assert answer.row == row
        for name in (
            "id", "task", "queue", "payload", "priority", "policy", "owner", "team", "tags",
            "headers", "request_id", "digest", "unique_key",
        ):  # fmt: skip
            assert getattr(row, name) == getattr(new, name), name
        assert row.lease_seconds == 12.5
        assert row.correlation_id == "c-1"
        assert row.state is State.QUEUED
        assert row.created_at == row.queued_at == row.updated_at == clock.now()
        assert (row.attempt, row.fence, row.retry_count, row.crash_count) == (0, 0, 0, 0)
        assert (row.percent, row.result, row.error, row.ended_at) == (0, None, None, None)

    async def test_a_claim_returns_the_enqueued_fields(self, store: Store) -> None:
        put = await enqueue_one(store, payload=b"\x00\x01\xfe", tags=("a", "b"), headers={"k": "v"})
        [got] = await claim_all(store)
        assert (got.id, got.payload, got.tags, got.headers) == (
            put.id,
            b"\x00\x01\xfe",
            ("a", "b"),
            {"k": "v"},
        )

    async def test_nothing_in_nothing_out(self, store: Store) -> None:
        assert await store.enqueue([]) == []

    async def test_results_follow_the_order_of_the_jobs(self, store: Store) -> None:
        new = [make_job(queue=f"queue-{n % 3}") for n in range(250)]
        answers = await store.enqueue(new)
        assert [answer.row and answer.row.id for answer in answers] == [job.id for job in new]
        rows = await store.get([job.id for job in new])
        assert rows == [answer.row for answer in answers]

    # -- repeats

    async def test_a_repeated_enqueue_returns_the_same_result(self, store: Store) -> None:
        new = make_job()
        [first] = await store.enqueue([new])
        [again] = await store.enqueue([new])
        assert (again.status, again.row) == (CREATED, first.row)
        assert len(await claim_all(store)) == 1

    async def test_a_repeated_enqueue_with_a_key_returns_the_same_result(
        self, store: Store
    ) -> None:
        new = make_job(request_id="r", unique_key="k", debounce=True, digest=b"d")
        [first] = await store.enqueue([new])
        [again] = await store.enqueue([new])
        assert (again.status, again.row) == (CREATED, first.row)
        assert (await get_one(store, new.id)).state is State.QUEUED

    async def test_a_repeated_bulk_enqueue_adds_only_missing_jobs(self, store: Store) -> None:
        new = [make_job() for _ in range(6)]
        await store.enqueue(new[1:4])
        answers = await store.enqueue(new)
        assert [answer.status for answer in answers] == [CREATED] * 6
        assert [answer.row for answer in answers] == await store.get([job.id for job in new])
        assert {job.id for job in await claim_all(store)} == {job.id for job in new}

    async def test_an_id_twice_in_one_call_is_one_job(self, store: Store) -> None:
        new = make_job()
        first, other, again = await store.enqueue([new, make_job(), new])
        assert (again.status, again.row) == (CREATED, first.row)
        assert other.status is CREATED
        assert len(await claim_all(store)) == 2

    async def test_a_repeated_enqueue_returns_the_current_row(self, store: Store) -> None:
        new = make_job()
        await store.enqueue([new])
        [row] = await claim_all(store)
        await settle_one(store, row, Succeeded(result=b'"done"'))
        [again] = await store.enqueue([new])
        assert again.status is CREATED
        assert again.row is not None
        assert (again.row.state, again.row.result) == (State.SUCCEEDED, b'"done"')
        assert await claim_all(store) == []

    async def test_an_id_with_another_digest_is_a_conflict(self, store: Store) -> None:
        first = await enqueue_one(store, payload=b"1", digest=b"one")
        [answer] = await store.enqueue([make_job(id=first.id, payload=b"2", digest=b"two")])
        assert answer.status is CONFLICT
        assert isinstance(answer.error, ConflictError)
        assert await get_one(store, first.id) == first

    async def test_an_id_of_another_owner_is_a_conflict_without_details(self, store: Store) -> None:
        foreign = await enqueue_one(store, owner="ada", payload=b'"secret"')
        own, other = make_job(id=foreign.id, owner="bob"), make_job(owner="bob")
        taken, stored = await store.enqueue([own, other])
        assert taken.status is CONFLICT
        assert taken.row is None
        assert stored.status is CREATED
        assert await get_one(store, foreign.id) == foreign

    # -- request ids

    async def test_a_request_id_identifies_one_job(self, store: Store) -> None:
        first = await enqueue_one(store, owner="ada", request_id="r-1", digest=b"same")
        new = make_job(owner="ada", request_id="r-1", digest=b"same")
        [again] = await store.enqueue([new])
        assert (again.status, again.row) == (DUPLICATE, first)
        assert await store.get([new.id]) == [None]

    async def test_a_request_id_identifies_one_job_within_one_call(self, store: Store) -> None:
        first, again = await store.enqueue([make_job(request_id="r"), make_job(request_id="r")])
        assert (first.status, again.status) == (CREATED, DUPLICATE)
        assert again.row == first.row

    async def test_a_request_id_stays_after_its_job_ends(self, store: Store) -> None:
        row = await start_one(store, request_id="r-1")
        await settle_one(store, row, Succeeded())
        [again] = await store.enqueue([make_job(request_id="r-1")])
        assert again.status is DUPLICATE
        assert again.row == await get_one(store, row.id)

    async def test_a_request_id_is_free_after_its_job_is_deleted(self, store: Store) -> None:
        row = await start_one(store, request_id="r-1")
        await settle_one(store, row, Succeeded())
        await store.delete([row.id])
        [answer] = await store.enqueue([make_job(request_id="r-1")])
        assert answer.status is CREATED

    async def test_a_request_id_with_another_digest_is_a_conflict(self, store: Store) -> None:
        first = await enqueue_one(store, request_id="r-1", digest=b"one")
        new = make_job(request_id="r-1", digest=b"two")
        [answer] = await store.enqueue([new])
        assert (answer.status, answer.row) == (CONFLICT, first)
        assert isinstance(answer.error, ConflictError)
        assert await store.get([new.id]) == [None]

    async def test_a_request_id_without_a_digest_matches_any_payload(self, store: Store) -> None:
        first = await enqueue_one(store, request_id="r-1", digest=b"one")
        [answer] = await store.enqueue([make_job(request_id="r-1")])
        assert (answer.status, answer.row) == (DUPLICATE, first)

    async def test_owners_do_not_share_request_ids(self, store: Store) -> None:
        answers = await store.enqueue(
            [make_job(owner=owner, request_id="r-1") for owner in ("", "ada", "bob")]
        )
        assert [answer.status for answer in answers] == [CREATED] * 3

    async def test_every_request_id_has_its_own_job(self, store: Store) -> None:
        first = await enqueue_one(store, owner="ada", request_id="r-1")
        [second] = await store.enqueue([make_job(owner="ada", request_id="r-2")])
        assert second.status is CREATED
        assert second.row is not None
        assert second.row.id != first.id

    async def test_an_empty_request_id_is_a_request_id(self, store: Store) -> None:
        first, other, again = await store.enqueue(
            [make_job(request_id=""), make_job(request_id=None), make_job(request_id="")]
        )
        assert [first.status, other.status] == [CREATED, CREATED]
        assert (again.status, again.row) == (DUPLICATE, first.row)

    # -- invalid jobs

    @pytest.mark.parametrize("wrong", BAD.values(), ids=BAD.keys())
    async def test_an_invalid_job_is_refused_without_affecting_other_jobs(
        self, store: Store, wrong: dict[str, Any]
    ) -> None:
        before, bad, after_it = make_job(), make_job(**wrong), make_job(unique_key="k")
        answers = await store.enqueue([before, bad, after_it])
        assert [answer.status for answer in answers] == [CREATED, REFUSED, CREATED]
        assert answers[1].error is not None
        assert answers[1].row is None
        assert await store.get([bad.id]) == [None]
        assert {job.id for job in await claim_all(store)} == {before.id, after_it.id}

    async def test_an_oversize_payload_is_refused_as_too_large(self, store: Store) -> None:
        [answer] = await store.enqueue([make_job(payload=b"x" * (size_limits.MAX_BLOB + 1))])
        assert isinstance(answer.error, TooLargeError)

    @pytest.mark.parametrize("size", [0, 1, 1_000, 4_096, 65_536, size_limits.MAX_BLOB])
    async def test_a_payload_up_to_the_size_limit_is_read_unchanged(
        self, store: Store, size: int
    ) -> None:
        payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
        new = make_job(payload=payload)
        [answer] = await store.enqueue([new])
        assert answer.status is CREATED
        assert (await get_one(store, new.id)).payload == payload
        [claimed] = await claim_all(store)
        assert claimed.payload == payload

    async def test_one_call_stores_large_and_small_payloads(self, store: Store) -> None:
        sizes = [10, 200_000, 0, 50_000, 3, 1_000_000]
        new = [make_job(payload=bytes([n]) * size) for n, size in enumerate(sizes)]
        await store.enqueue(new)
        stored = {job.id: job.payload for job in await claim_all(store)}
        assert stored == {job.id: job.payload for job in new}

    async def test_names_and_keys_may_have_the_maximum_length(self, store: Store) -> None:
        name, key = "n" * size_limits.MAX_NAME, "k" * size_limits.MAX_KEY
        tags = tuple(f"{n:0512d}" for n in range(size_limits.MAX_TAGS))
        row = await enqueue_one(
            store, task=name, queue=name, owner=key, team=key, unique_key=key, tags=tags
        )
        assert await get_one(store, row.id) == row

    @pytest.mark.parametrize("priority", [size_limits.MAX_PRIORITY, -size_limits.MAX_PRIORITY])
    async def test_a_priority_may_be_any_32_bit_integer(self, store: Store, priority: int) -> None:
        row = await enqueue_one(store, priority=priority)
        assert (await get_one(store, row.id)).priority == priority
