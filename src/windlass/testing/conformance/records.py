"""Small data beside the jobs: versioned records that are written whole or not at all."""

from __future__ import annotations

import asyncio

from windlass.core.clock import SECOND
from windlass.core.records import Entry, Put
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


class TestRecords:
    async def test_nothing_in_nothing_out(self, store: Store) -> None:
        assert await store.put_records([]) == []
        assert await store.get_records("plan", []) == []
        assert await store.list_records("plan") == []
        await store.delete_records("plan", [])

    async def test_what_is_put_is_got(self, store: Store) -> None:
        [answer] = await store.put_records([put("nightly", b"\x00\xff")])

        entry = Entry(kind="plan", key="nightly", value=b"\x00\xff", version=1)
        assert (answer.applied, answer.entry) == (True, entry)
        assert await store.get_records("plan", ["nightly"]) == [entry]

    async def test_records_are_got_in_the_order_asked(self, store: Store) -> None:
        await store.put_records([put("a"), put("b")])

        found = await store.get_records("plan", ["b", "none", "a", "b"])

        assert [entry and entry.key for entry in found] == ["b", None, "a", "b"]

    async def test_kinds_do_not_mix(self, store: Store) -> None:
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

    async def test_a_write_that_names_the_version_it_saw_is_made(self, store: Store) -> None:
        await store.put_records([put("x", b"1")])

        [answer] = await store.put_records([put("x", b"2", expected=1)])

        assert answer.applied
        assert answer.entry is not None
        assert (answer.entry.value, answer.entry.version) == (b"2", 2)

    async def test_a_write_that_saw_an_older_version_is_not_made(self, store: Store) -> None:
        await store.put_records([put("x", b"1"), put("x", b"2")])

        [answer] = await store.put_records([put("x", b"3", expected=1)])

        assert not answer.applied
        assert answer.entry is not None
        assert (answer.entry.value, answer.entry.version) == (b"2", 2)
        assert await store.get_records("plan", ["x"]) == [answer.entry]

    async def test_a_write_that_expects_nothing_is_made_only_once(self, store: Store) -> None:
        first, second = await store.put_records(
            [put("x", b"mine", expected=0), put("x", b"yours", expected=0)]
        )

        assert (first.applied, second.applied) == (True, False)
        assert second.entry == first.entry

    async def test_a_write_that_expects_something_is_not_made_where_nothing_is(
        self, store: Store
    ) -> None:
        [answer] = await store.put_records([put("x", expected=3)])

        assert (answer.applied, answer.entry) == (False, None)
        assert await keys(store) == []

    async def test_of_many_who_saw_the_same_version_one_writes(self, store: Store) -> None:
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

    async def test_one_refused_write_does_not_fail_its_neighbours(self, store: Store) -> None:
        answers = await store.put_records([put("a"), put("b", expected=7), put("c")])

        assert [answer.applied for answer in answers] == [True, False, True]
        assert await keys(store) == ["a", "c"]

    # -- repeats

    async def test_a_repeated_write_is_answered_as_the_first_was(self, store: Store) -> None:
        for wish in (put("plain"), put("first", expected=0)):
            assert await store.put_records([wish]) == await store.put_records([wish])

        await store.put_records([put("seen", b"1")])
        wish = put("seen", b"2", expected=1)
        assert await store.put_records([wish]) == await store.put_records([wish])

    async def test_a_repeated_write_of_a_record_with_a_lifetime_is_recognised(
        self, store: Store
    ) -> None:
        """Whoever took a place and lost the answer asks again, and must not be told: taken."""
        wish = put("seat", b"ana", expected=0, ttl=30)

        [first] = await store.put_records([wish])
        [again] = await store.put_records([wish])

        assert (first.applied, again.applied) == (True, True)
        assert again.entry is not None
        assert again.entry.value == b"ana"
        [other] = await store.put_records([put("seat", b"ben", expected=0, ttl=30)])
        assert not other.applied

    # -- lifetimes

    async def test_a_record_with_a_lifetime_goes_when_it_is_over(
        self, store: Store, clock: VirtualClock
    ) -> None:
        [answer] = await store.put_records([put("x", ttl=10)])
        assert answer.entry is not None
        assert answer.entry.expires_at == clock.now() + 10 * SECOND

        clock.advance(9)
        assert await keys(store) == ["x"]

        clock.advance(1)
        assert await keys(store) == []
        assert await store.get_records("plan", ["x"]) == [None]

    async def test_to_repeat_it_is_to_stay_alive(self, store: Store, clock: VirtualClock) -> None:
        for _ in range(5):
            [answer] = await store.put_records([put("worker-1", b"here", ttl=10)])
            assert answer.applied
            clock.advance(8)

        assert await keys(store) == ["worker-1"]
        clock.advance(8)
        assert await keys(store) == []

    async def test_a_dead_record_is_as_good_as_none(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.put_records([put("x", b"old", ttl=10)])
        clock.advance(10)

        [answer] = await store.put_records([put("x", b"new", expected=0)])

        assert answer.applied
        [entry] = await store.get_records("plan", ["x"])
        assert entry is not None
        assert (entry.value, entry.expires_at) == (b"new", None)

    async def test_a_write_without_a_lifetime_makes_it_last(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.put_records([put("x", b"1", ttl=10)])
        await store.put_records([put("x", b"2")])

        clock.advance(1000)

        assert await keys(store) == ["x"]

    # -- lists

    async def test_a_list_is_in_the_order_of_its_keys(self, store: Store) -> None:
        names = ["b", "a", "B", "10", "2", "é", "z", "日本", "\N{GRINNING FACE}", "\uffee"]
        await store.put_records([put(name) for name in names])

        assert await keys(store) == sorted(names)

    async def test_a_list_is_read_in_pages(self, store: Store, clock: VirtualClock) -> None:
        names = [f"{n:02}" for n in range(10)]
        await store.put_records([put(name, ttl=5 if name in "03 04" else 500) for name in names])
        clock.advance(5)
        alive = [name for name in names if name not in "03 04"]

        told: list[str] = []
        while page := await keys(store, after=told[-1] if told else "", limit=3):
            assert len(page) <= 3
            told += page

        assert told == alive

    async def test_a_list_may_begin_between_two_keys(self, store: Store) -> None:
        await store.put_records([put("a"), put("c"), put("e")])

        assert await keys(store, after="b") == ["c", "e"]
        assert await keys(store, after="c") == ["e"]
        assert await keys(store, after="e") == []

    # -- deleting

    async def test_what_is_deleted_is_gone_and_may_be_deleted_again(self, store: Store) -> None:
        await store.put_records([put("a"), put("b")])

        await store.delete_records("plan", ["a", "none"])
        await store.delete_records("plan", ["a"])

        assert await keys(store) == ["b"]

    async def test_a_record_made_anew_begins_at_version_one(self, store: Store) -> None:
        await store.put_records([put("x", b"1"), put("x", b"2")])
        await store.delete_records("plan", ["x"])

        [answer] = await store.put_records([put("x", b"3", expected=0)])

        assert answer.applied
        assert answer.entry is not None
        assert answer.entry.version == 1
