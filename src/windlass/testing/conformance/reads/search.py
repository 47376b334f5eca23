"""Search: jobs by text in task, tags and error, and counts of matching jobs."""

from __future__ import annotations

import json

import pytest

from windlass.core.decisions.outcome import Failed, Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import State
from windlass.core.query.job_query import Count, JobQuery
from windlass.core.size_limits import MAX_KEY
from windlass.store import COUNT_CAP, Store
from windlass.testing.conformance.history_helpers import finished
from windlass.testing.conformance.reads.find import enqueue_many, find_ids, newest_first
from windlass.testing.factories import claim_one, enqueue_one, make_failure, settle_one, start_one

ERROR = {"type": "DiskError", "message": "No room\nleft for Ärger", "traceback": "in write_film"}
SEALED = bytes([1, 2]) + b"k1" + bytes(range(256))


def failing(body: bytes | None, code: str = "storage.full") -> Failed:
    return Failed(failure=make_failure(code, terminal=True, body=body))


class TestSearch:
    async def test_text_is_found_in_task_tags_and_error(self, store: Store) -> None:
        body = json.dumps(ERROR, ensure_ascii=False).encode()
        task = await enqueue_one(store, task="film.Render", queue="later")
        tag = await enqueue_one(store, tags=("first", "50% Off_"), queue="later")
        error = await finished(store, failing(body))
        expected = {
            "film.render": task, "ILM.REN": task, "RENDER": task,
            "50% off_": tag, "IRST": tag,
            "storage": error, "GE.FULL": error, "diskerror": error, "No Room\nleft": error,
            "Ärger": error, "LEFT FOR": error,
        }  # fmt: skip
        for text, job in expected.items():
            assert await find_ids(store, text=text) == [job.id], text

    async def test_text_in_other_fields_is_not_found(self, store: Store) -> None:
        """Nor text that spans two fields, nor wildcard characters."""
        await enqueue_one(
            store, task="mail", payload=b'"secret"', tags=("a", "b"), owner="ann", queue="later"
        )
        await finished(store, failing(json.dumps(ERROR).encode()), task="mail")
        for text in ("secret", "ann", "write_film", "traceback", "ab", "a,b", '"a"', "mai_", "m%l",
                     ".*", "DiskErrorNo", "type"):  # fmt: skip
            assert await find_ids(store, text=text) == [], text

    async def test_non_ascii_letters_are_found_case_sensitively(self, store: Store) -> None:
        job = await enqueue_one(store, task="ÜBUNG")

        assert await find_ids(store, text="Übung") == [job.id]
        assert await find_ids(store, text="übung") == []

    @pytest.mark.parametrize(
        "body", [None, SEALED, b"", b"{", b"[1]", b'"text"', b'{"type": 3}', b"\xff{}"]
    )
    async def test_an_encrypted_error_is_found_by_its_code(
        self, store: Store, body: bytes | None
    ) -> None:
        job = await finished(store, failing(body))

        assert await find_ids(store, text="STORAGE") == [job.id]
        assert await find_ids(store, text="k1") == []

    async def test_text_combines_with_other_filters(self, store: Store) -> None:
        ids = await enqueue_many(store, 3, tags=("film",))
        await enqueue_many(store, 2)
        await store.apply([CancelRequest(job_id=ids[0])])

        assert await find_ids(store, text="FILM", limit=1) == newest_first(ids)
        assert await find_ids(store, text="film", states=frozenset({State.CANCELED})) == [ids[0]]
        assert await find_ids(store, text="film", owner="ann") == []
        assert len(await find_ids(store, text="")) == 5

    async def test_a_rare_text_is_found_among_thousands(self, store: Store) -> None:
        rare = await enqueue_one(store, tags=("needle",))
        await enqueue_many(store, 6000)

        assert await find_ids(store, text="Needle") == [rare.id]

    async def test_a_cursor_is_valid_only_for_its_text(self, store: Store) -> None:
        await enqueue_many(store, 3, task="film")
        page = await store.find(JobQuery(text="film", limit=1))

        for text in (None, "fil"):
            with pytest.raises(InvalidArgumentError):
                await store.find(JobQuery(text=text, limit=1, cursor=page.cursor))

    @pytest.mark.parametrize("text", ["a\0b", "x" * (MAX_KEY + 1), "\ud800"])
    async def test_an_invalid_search_text_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgumentError):
            JobQuery(text=text)

    # -- counts

    async def test_a_count_equals_the_number_of_found_jobs(self, store: Store) -> None:
        await enqueue_many(store, 4, tags=("film",))
        await enqueue_many(store, 3, owner="ann")
        await settle_one(store, await claim_one(store), Succeeded())

        assert await store.insights.count(JobQuery()) == Count(7, capped=False)
        assert await store.insights.count(JobQuery(limit=1)) == Count(7, capped=False)
        assert await store.insights.count(JobQuery(text="FILM")) == Count(4, capped=False)
        assert await store.insights.count(JobQuery(owner="ann")) == Count(3, capped=False)
        queued = JobQuery(states=frozenset({State.QUEUED}), tags=frozenset({"film"}))
        assert await store.insights.count(queued) == Count(3, capped=False)
        assert await store.insights.count(JobQuery(owner="ben")) == Count(0, capped=False)

    async def test_a_count_ignores_the_cursor(self, store: Store) -> None:
        await enqueue_many(store, 3)
        page = await store.find(JobQuery(limit=1))

        assert await store.insights.count(JobQuery(cursor=page.cursor)) == Count(3, capped=False)

    async def test_failures_are_counted_among_thousands(self, store: Store) -> None:
        await finished(store)
        canceled = await start_one(store)
        await store.apply([CancelRequest(job_id=canceled.id)])
        await enqueue_many(store, 6000)

        assert await store.insights.count(JobQuery(states=frozenset({State.FAILED}))) == Count(
            1, capped=False
        )
        assert await store.insights.count(JobQuery(queues=frozenset({"none"}))) == Count(
            0, capped=False
        )

    async def test_a_count_is_exact_up_to_a_cap_and_marked_above(self, store: Store) -> None:
        await enqueue_many(store, COUNT_CAP)
        assert await store.insights.count(JobQuery()) == Count(COUNT_CAP, capped=False)

        await enqueue_one(store)
        assert await store.insights.count(JobQuery()) == Count(COUNT_CAP, capped=True)
