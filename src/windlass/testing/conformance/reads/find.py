"""Find: jobs by filters, newest first, in pages that are stable under changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Failed, Snoozed, Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.errors import InvalidArgumentError
from windlass.core.ids import uuid7
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import MAX_PAGE, JobQuery, encode_cursor
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import BROKEN, finished
from windlass.testing.factories import (
    claim_one,
    enqueue_one,
    get_one,
    make_failure,
    make_job,
    settle_one,
    start_one,
)


async def find_all(store: Store, **filters: Any) -> list[JobRow]:
    """Return the rows of all pages."""
    query = JobQuery(**filters)
    page = await store.find(query)
    rows = [*page.rows]
    while page.cursor is not None:
        page = await store.find(replace(query, cursor=page.cursor))
        rows += page.rows
    return rows


async def find_ids(store: Store, **filters: Any) -> list[UUID]:
    return [row.id for row in await find_all(store, **filters)]


async def enqueue_many(store: Store, count: int, **values: Any) -> list[UUID]:
    """Enqueue `count` jobs; return their ids in arrival order."""
    jobs = [make_job(**values) for _ in range(count)]
    answers = await store.enqueue(jobs)
    assert all(answer.accepted for answer in answers)
    return [job.id for job in jobs]


def newest_first(ids: Sequence[UUID]) -> list[UUID]:
    return list(reversed(ids))


class TestFind:
    async def test_an_empty_store_has_one_empty_page(self, store: Store) -> None:
        page = await store.find(JobQuery())

        assert (list(page.rows), page.cursor) == ([], None)

    async def test_without_filters_all_jobs_are_found_newest_first(self, store: Store) -> None:
        ids = await enqueue_many(store, 5)

        assert await find_ids(store) == newest_first(ids)

    async def test_rows_can_be_read_without_payload_and_result(self, store: Store) -> None:
        """In every final state, and with large payloads that a store may keep elsewhere."""
        large = b'"' + b"x" * 100_000 + b'"'
        for payload in (b"{}", large):
            await settle_one(
                store, await start_one(store, payload=payload), Succeeded(result=large)
            )
        await settle_one(store, await start_one(store, payload=large, tags=("a", "b")), BROKEN)
        await enqueue_one(store, payload=large, headers={"a": "b"}, limit_key="k", flow_id=uuid7())

        whole = await find_all(store)

        assert len(whole) == 4
        assert {len(row.payload) for row in whole} == {2, len(large)}
        bare = [replace(row, payload=b"", result=None) for row in whole]
        assert await find_all(store, omit_payload=True) == bare
        first = await store.find(JobQuery(limit=3, omit_payload=True))
        rest = await store.find(JobQuery(limit=3, cursor=first.cursor))
        assert [*first.rows, *rest.rows] == [*bare[:3], whole[3]]

    async def test_newest_means_arrival_not_clock_or_id(
        self, store: Store, clock: VirtualClock
    ) -> None:
        high, low = sorted((uuid7(), uuid7()), reverse=True)
        await enqueue_one(store, id=high)
        clock.jump(clock.now() - 3_600_000_000)
        await enqueue_one(store, id=low)

        assert await find_ids(store) == [low, high]

    async def test_found_rows_are_complete(self, store: Store) -> None:
        job = await start_one(
            store,
            payload=b"x" * 20_000,
            tags=("film", "draft"),
            headers={"correlation-id": "c-1"},
            team="blue",
            priority=3,
            lease=12.5,
        )

        [row] = await find_all(store)

        assert row == job == await get_one(store, job.id)

    # -- filters

    async def test_by_state(self, store: Store) -> None:
        snoozing = await start_one(store)
        await settle_one(store, snoozing, Snoozed(delay=60))
        jobs = {
            State.SUCCEEDED: (await finished(store, Succeeded())).id,
            State.FAILED: (await finished(store, BROKEN)).id,
            State.RETRYING: snoozing.id,
            State.RUNNING: (await start_one(store)).id,
            State.CREATED: (await enqueue_one(store, hold=True)).id,
            State.CANCELED: (canceled := await enqueue_one(store)).id,
            State.QUEUED: (await enqueue_one(store)).id,
        }
        await store.apply([CancelRequest(job_id=canceled.id)])

        for state in State:
            assert await find_ids(store, states=frozenset({state})) == [jobs[state]]
        ended = await find_ids(store, states=frozenset({State.FAILED, State.CANCELED}))
        assert set(ended) == {jobs[State.FAILED], jobs[State.CANCELED]}
        mixed = await find_ids(store, states=frozenset({State.FAILED, State.QUEUED}))
        assert mixed == [jobs[State.QUEUED], jobs[State.FAILED]]

    async def test_by_queue_and_by_task(self, store: Store) -> None:
        mail = await enqueue_one(store, queue="mail", task="send")
        film = await enqueue_one(store, queue="film", task="render")
        await enqueue_one(store, queue="other", task="send")

        assert await find_ids(store, queues=frozenset({"mail", "film"})) == [film.id, mail.id]
        assert await find_ids(store, tasks=frozenset({"render"})) == [film.id]
        both = await find_ids(store, queues=frozenset({"mail"}), tasks=frozenset({"render"}))
        assert both == []

    async def test_by_owner_and_by_team(self, store: Store) -> None:
        ana = await enqueue_one(store, owner="ana", team="blue")
        unowned = await enqueue_one(store)

        assert await find_ids(store, owner="ana") == [ana.id]
        assert await find_ids(store, owner="") == [unowned.id]
        assert await find_ids(store, owner="Ana") == []
        assert await find_ids(store, team="blue") == [ana.id]
        assert await find_ids(store, team="red") == []

    async def test_by_tags_a_job_must_have_all(self, store: Store) -> None:
        both = await enqueue_one(store, tags=("film", "draft"))
        single = await enqueue_one(store, tags=("film",))
        await enqueue_one(store)

        assert await find_ids(store, tags=frozenset({"film"})) == [single.id, both.id]
        assert await find_ids(store, tags=frozenset({"film", "draft"})) == [both.id]
        assert await find_ids(store, tags=frozenset({"fil"})) == []

    async def test_by_the_worker_that_ran_it_last(self, store: Store) -> None:
        job = await start_one(store, worker="worker-1")
        await start_one(store, worker="worker-2")

        assert await find_ids(store, worker="worker-1") == [job.id]

    async def test_by_the_code_of_its_error(self, store: Store) -> None:
        disk = Failed(failure=make_failure("disk_full", terminal=True))
        full = await finished(store, disk)
        await finished(store, BROKEN)
        again = await start_one(store)
        await settle_one(store, again, Failed(failure=make_failure("disk_full"), delay=60))

        assert await find_ids(store, error="disk_full") == [again.id, full.id]
        failed = await find_ids(store, error="disk_full", states=frozenset({State.FAILED}))
        assert failed == [full.id]

    async def test_an_error_cleared_by_a_success_is_not_found(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Failed(failure=make_failure("flaky"), delay=0))
        await settle_one(store, await claim_one(store), Succeeded())

        assert await find_ids(store, error="flaky") == []

    async def test_by_request_id_and_by_unique_key(self, store: Store) -> None:
        requested = await enqueue_one(store, request_id="order-7")
        only = await enqueue_one(store, unique_key="report")

        assert await find_ids(store, request_id="order-7") == [requested.id]
        assert await find_ids(store, unique_key="report") == [only.id]

    async def test_by_the_job_that_was_retried(self, store: Store) -> None:
        old = await finished(store)
        first = await finished(store, retry_of=old.id)
        second = await enqueue_one(store, retry_of=old.id)

        assert await find_ids(store, retry_of=old.id) == [second.id, first.id]

    async def test_by_the_first_job_of_a_lineage(self, store: Store) -> None:
        first = await finished(store)
        second = await finished(store, retry_of=first.id)
        third = await enqueue_one(store, retry_of=second.id)
        await enqueue_one(store)
        page = await store.find(JobQuery(root_id=first.id))
        assert [row.id for row in page.rows] == [third.id, second.id]

    async def test_by_creation_from_an_instant_until_before_another(
        self, store: Store, clock: VirtualClock
    ) -> None:
        ids = []
        for _ in range(3):
            ids.append((await enqueue_one(store)).id)
            clock.advance(60)
        first = clock.now() - 180_000_000

        assert await find_ids(store, created_from=first + 60_000_000) == [ids[2], ids[1]]
        assert await find_ids(store, created_to=first + 60_000_000) == [ids[0]]
        between = await find_ids(
            store, created_from=first + 60_000_000, created_to=first + 120_000_000
        )
        assert between == [ids[1]]

    # -- pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 10, 11])
    async def test_pages_of_any_size_hold_each_job_once(self, store: Store, limit: int) -> None:
        ids = await enqueue_many(store, 10)

        query = JobQuery(limit=limit)
        page = await store.find(query)
        rows = [*page.rows]
        while page.cursor is not None:
            assert len(page.rows) <= limit
            page = await store.find(replace(query, cursor=page.cursor))
            rows += page.rows

        assert [row.id for row in rows] == newest_first(ids)

    async def test_new_jobs_do_not_shift_the_pages(self, store: Store) -> None:
        ids = await enqueue_many(store, 6)
        first = await store.find(JobQuery(limit=2))

        await enqueue_many(store, 5)
        second = await store.find(JobQuery(limit=2, cursor=first.cursor))
        await enqueue_many(store, 5)
        third = await store.find(JobQuery(limit=2, cursor=second.cursor))

        rows = [*first.rows, *second.rows, *third.rows]
        assert [row.id for row in rows] == newest_first(ids)

    async def test_deleted_jobs_do_not_shift_the_pages(self, store: Store) -> None:
        ids = await enqueue_many(store, 6)
        await store.apply([CancelRequest(job_id=job_id) for job_id in ids])
        first = await store.find(JobQuery(limit=2))

        await store.delete([ids[5], ids[4], ids[3]])  # two that were returned, and one that was not

        second = await store.find(JobQuery(limit=2, cursor=first.cursor))
        assert [row.id for row in second.rows] == [ids[2], ids[1]]

    async def test_changed_jobs_do_not_shift_or_repeat_others(self, store: Store) -> None:
        ids = await enqueue_many(store, 6)
        queued = JobQuery(states=frozenset({State.QUEUED}), limit=2)
        first = await store.find(queued)

        await store.apply([CancelRequest(job_id=job_id) for job_id in (ids[5], ids[3])])

        second = await store.find(replace(queued, cursor=first.cursor))
        assert [row.id for row in second.rows] == [ids[2], ids[1]]

    async def test_a_rare_job_is_found_among_thousands(self, store: Store) -> None:
        """A page may be short or empty as long as it has a cursor."""
        rare = await enqueue_one(store, tags=("rare",))
        broken = await finished(store, queue="trouble")
        await enqueue_many(store, 6000)

        assert await find_ids(store, tags=frozenset({"rare"}), limit=10) == [rare.id]
        assert await find_ids(store, states=frozenset({State.FAILED})) == [broken.id]

    async def test_the_page_size_of_one_search_may_change(self, store: Store) -> None:
        ids = await enqueue_many(store, 6)
        first = await store.find(JobQuery(limit=1))

        rest = await store.find(JobQuery(limit=100, cursor=first.cursor))

        assert [row.id for row in rest.rows] == newest_first(ids[:-1])

    @pytest.mark.parametrize("limit", [-1, 0, MAX_PAGE + 1])
    async def test_an_invalid_page_size_is_refused(self, limit: int) -> None:
        with pytest.raises(InvalidArgumentError):
            JobQuery(limit=limit)

    # -- cursors

    async def test_a_cursor_is_valid_only_for_its_filters(self, store: Store) -> None:
        await enqueue_many(store, 3, owner="ana")
        page = await store.find(JobQuery(owner="ana", limit=1))

        for other in (JobQuery(), JobQuery(owner="ben"), JobQuery(owner="ana", team="blue")):
            with pytest.raises(InvalidArgumentError):
                await store.find(replace(other, cursor=page.cursor))

    @pytest.mark.parametrize("cursor", ["", "nonsense", "!", "MTo=", "\N{SNOWMAN}", "=" * 2000])
    async def test_an_invalid_cursor_is_refused(self, store: Store, cursor: str) -> None:
        await enqueue_many(store, 2)

        with pytest.raises(InvalidArgumentError):
            await store.find(JobQuery(cursor=cursor))

    async def test_a_modified_cursor_is_refused_or_harmless(self, store: Store) -> None:
        """It returns a page of the same search or raises; it never widens the search."""
        own = set(await enqueue_many(store, 5, owner="ana"))
        await enqueue_many(store, 5, owner="ben")
        query = JobQuery(owner="ana", limit=2)
        cursor = (await store.find(query)).cursor
        assert cursor is not None

        refused = 0
        for index in range(len(cursor)):
            for letter in "A0z":
                modified = cursor[:index] + letter + cursor[index + 1 :]
                try:
                    page = await store.find(replace(query, cursor=modified))
                except InvalidArgumentError:
                    refused += 1
                else:
                    assert {row.id for row in page.rows} <= own

        assert refused > len(cursor)

    @pytest.mark.parametrize("number", [-1, 0, 2**63, 10**30])
    async def test_a_cursor_with_an_extreme_number_is_refused_or_harmless(
        self, store: Store, number: int
    ) -> None:
        ids = set(await enqueue_many(store, 3))
        forged = encode_cursor(JobQuery(), number)

        try:
            page = await store.find(JobQuery(cursor=forged))
        except InvalidArgumentError:
            return
        assert {row.id for row in page.rows} <= ids
