"""Versioned records: small values apart from the jobs, written with compare-and-set."""

from __future__ import annotations

import asyncio

from windlass.core.clock import SECOND
from windlass.core.versioned_record import Entry, Put
from windlass.store import Store
from windlass.testing.clock import VirtualClock


def put(
    key: str,
    value: bytes = b"1",
    kind: str = "plan",
    *,
    expected: int | None = None,
    ttl: float | None = None,
) -> Put:
    return Put(kind=kind, key=key, value=value, expected=expected, ttl=ttl)


async def keys(store: Store, kind: str = "plan", after: str = "", limit: int = 1000) -> list[str]:
    return [entry.key for entry in await store.list_records(kind, after, limit)]


class TestVersionedRecords:
    async def test_nothing_in_nothing_out(self, store: Store) -> None:
        assert await store.put_records([]) == []
        assert await store.get_records("plan", []) == []
        assert await store.list_records("plan") == []
        await store.delete_records("plan", [])

    async def test_a_record_is_read_as_it_was_put(self, store: Store) -> None:
        [answer] = await store.put_records([put("nightly", b"\x00\xff")])

        entry = Entry(kind="plan", key="nightly", value=b"\x00\xff", version=1)
        assert (answer.applied, answer.entry) == (True, entry)
        assert await store.get_records("plan", ["nightly"]) == [entry]

    async def test_records_are_returned_in_the_order_of_the_keys(self, store: Store) -> None:
        await store.put_records([put("a"), put("b")])

        found = await store.get_records("plan", ["b", "none", "a", "b"])

        assert [entry and entry.key for entry in found] == ["b", None, "a", "b"]

    async def test_kinds_are_separate(self, store: Store) -> None:
        await store.put_records([put("x", b"plan"), put("x", b"key", kind="key")])

        [plan] = await store.get_records("plan", ["x"])
        [key] = await store.get_records("key", ["x"])
        assert plan is not None
        assert key is not None
        assert (plan.value, key.value) == (b"plan", b"key")

        await store.delete_records("plan", ["x"])
        assert (await keys(store, "plan"), await keys(store, "key")) == ([], ["x"])

    async def test_each_write_raises_the_version(self, store: Store) -> None:
        answers = await store.put_records([put("x", b"1"), put("x", b"2"), put("x", b"3")])

        assert [answer.entry and answer.entry.version for answer in answers] == [1, 2, 3]

    # -- compare and set

    async def test_a_put_with_the_current_version_succeeds(self, store: Store) -> None:
        await store.put_records([put("x", b"1")])

        [answer] = await store.put_records([put("x", b"2", expected=1)])

        assert answer.applied
        assert answer.entry is not None
        assert (answer.entry.value, answer.entry.version) == (b"2", 2)

    async def test_a_put_with_an_older_version_fails(self, store: Store) -> None:
        await store.put_records([put("x", b"1"), put("x", b"2")])

        [answer] = await store.put_records([put("x", b"3", expected=1)])

        assert not answer.applied
        assert answer.entry is not None
        assert (answer.entry.value, answer.entry.version) == (b"2", 2)
        assert await store.get_records("plan", ["x"]) == [answer.entry]

    async def test_a_put_that_expects_no_record_succeeds_once(self, store: Store) -> None:
        first, second = await store.put_records(
            [put("x", b"mine", expected=0), put("x", b"yours", expected=0)]
        )

        assert (first.applied, second.applied) == (True, False)
        assert second.entry == first.entry

    async def test_a_put_that_expects_a_record_fails_without_one(self, store: Store) -> None:
        [answer] = await store.put_records([put("x", expected=3)])

        assert (answer.applied, answer.entry) == (False, None)
        assert await keys(store) == []

    async def test_one_of_many_puts_with_the_same_version_succeeds(self, store: Store) -> None:
        async with store.twin() as other:
            writes = [
                handle.put_records([put("x", f"{n}".encode(), expected=0)])
                for n, handle in enumerate([store, other] * 10)
            ]
            answers = [answer for [answer] in await asyncio.gather(*writes)]

        assert sum(answer.applied for answer in answers) == 1
        [entry] = await store.get_records("plan", ["x"])
        assert entry is not None
        assert entry.version == 1

    async def test_a_refused_put_does_not_affect_other_puts(self, store: Store) -> None:
        answers = await store.put_records([put("a"), put("b", expected=7), put("c")])

        assert [answer.applied for answer in answers] == [True, False, True]
        assert await keys(store) == ["a", "c"]

    # -- repeats

    async def test_a_repeated_put_returns_the_same_result(self, store: Store) -> None:
        for request in (put("plain"), put("first", expected=0)):
            assert await store.put_records([request]) == await store.put_records([request])

        await store.put_records([put("seen", b"1")])
        request = put("seen", b"2", expected=1)
        assert await store.put_records([request]) == await store.put_records([request])

    async def test_a_repeated_put_with_a_ttl_is_recognized(self, store: Store) -> None:
        """A client that lost the response repeats its put and must not get a conflict."""
        request = put("seat", b"ana", expected=0, ttl=30)

        [first] = await store.put_records([request])
        [again] = await store.put_records([request])

        assert (first.applied, again.applied) == (True, True)
        assert again.entry is not None
        assert again.entry.value == b"ana"
        [other] = await store.put_records([put("seat", b"ben", expected=0, ttl=30)])
        assert not other.applied

    # -- TTL

    async def test_a_record_with_a_ttl_expires(self, store: Store, clock: VirtualClock) -> None:
        [answer] = await store.put_records([put("x", ttl=10)])
        assert answer.entry is not None
        assert answer.entry.expires_at == clock.now() + 10 * SECOND

        clock.advance(9)
        assert await keys(store) == ["x"]

        clock.advance(1)
        assert await keys(store) == []
        assert await store.get_records("plan", ["x"]) == [None]

    async def test_a_repeated_put_extends_the_ttl(self, store: Store, clock: VirtualClock) -> None:
        for _ in range(5):
            [answer] = await store.put_records([put("worker-1", b"here", ttl=10)])
            assert answer.applied
            clock.advance(8)

        assert await keys(store) == ["worker-1"]
        clock.advance(8)
        assert await keys(store) == []

    async def test_an_expired_record_does_not_exist(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.put_records([put("x", b"old", ttl=10)])
        clock.advance(10)

        [answer] = await store.put_records([put("x", b"new", expected=0)])

        assert answer.applied
        [entry] = await store.get_records("plan", ["x"])
        assert entry is not None
        assert (entry.value, entry.expires_at) == (b"new", None)

    async def test_a_put_without_a_ttl_makes_the_record_permanent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.put_records([put("x", b"1", ttl=10)])
        await store.put_records([put("x", b"2")])

        clock.advance(1000)

        assert await keys(store) == ["x"]

    # -- lists

    async def test_a_list_is_ordered_by_key(self, store: Store) -> None:
        names = ["b", "a", "B", "10", "2", "é", "z", "日本", "\N{GRINNING FACE}", "\uffee"]
        await store.put_records([put(name) for name in names])

        assert await keys(store) == sorted(names)

    async def test_a_list_is_read_in_pages(self, store: Store, clock: VirtualClock) -> None:
        names = [f"{n:02}" for n in range(10)]
        await store.put_records([put(name, ttl=5 if name in "03 04" else 500) for name in names])
        clock.advance(5)
        expected = [name for name in names if name not in "03 04"]

        listed: list[str] = []
        while page := await keys(store, after=listed[-1] if listed else "", limit=3):
            assert len(page) <= 3
            listed += page

        assert listed == expected

    async def test_a_list_can_start_between_two_keys(self, store: Store) -> None:
        await store.put_records([put("a"), put("c"), put("e")])

        assert await keys(store, after="b") == ["c", "e"]
        assert await keys(store, after="c") == ["e"]
        assert await keys(store, after="e") == []

    # -- deleting

    async def test_delete_removes_a_record_and_is_idempotent(self, store: Store) -> None:
        await store.put_records([put("a"), put("b")])

        await store.delete_records("plan", ["a", "none"])
        await store.delete_records("plan", ["a"])

        assert await keys(store) == ["b"]

    async def test_a_recreated_record_starts_at_version_one(self, store: Store) -> None:
        await store.put_records([put("x", b"1"), put("x", b"2")])
        await store.delete_records("plan", ["x"])

        [answer] = await store.put_records([put("x", b"3", expected=0)])

        assert answer.applied
        assert answer.entry is not None
        assert answer.entry.version == 1
