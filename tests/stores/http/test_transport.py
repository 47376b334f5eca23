"""What a handle does when its server is away, slow, closed to it, or not a server at all."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.server.conftest import PATIENCE, Served
from tests.stores.network_proxy import way_to
from tests.stores.server_fixture import server, standing_in

from windlass import Windlass
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Succeeded, settle
from windlass.core.decisions.transition import Status
from windlass.core.errors import (
    ConflictError,
    InvalidArgumentError,
    SchemaError,
    StoreDeniedError,
    StoreError,
    StoreUnavailableError,
    TooLargeError,
)
from windlass.core.event import Event, EventType
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.records import Put
from windlass.server.auth.api_keys import Keys, Role
from windlass.server.config import Door, ServerConfig
from windlass.store import Saying
from windlass.stores import may_pass, open_store
from windlass.stores.http import HttpConfig, HttpStore
from windlass.stores.http import tail as http_tail
from windlass.stores.http.errors import lost, os_error, refused
from windlass.stores.http.tail import Sequel
from windlass.stores.memory import MemoryStore
from windlass.testing import make_job
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    even,
    get_one,
    note,
    read_events,
    say,
    settle_one,
    start_one,
)

SECRET = "s" * 43
KEY = f"wl_0123456789ab_{SECRET}"
HERE = HttpConfig(url="http://127.0.0.1:1", key=KEY)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("served")) as one:
        yield one


@pytest.fixture
def open_it(served: Served, tmp_path: Path) -> Iterator[Callable[[], HttpStore]]:
    with standing_in(served, MemoryStore(), tmp_path) as opened:
        yield opened


class Sleeps:
    """Pauses that are noted down, and take no time; `then` happens during each."""

    def __init__(self, then: Callable[[], Any] = lambda: None) -> None:
        self.slept: list[float] = []
        self._then = then

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        done = self._then()
        if asyncio.iscoroutine(done):
            await done
        await asyncio.sleep(0)


# -- a server that is away


async def test_what_did_not_arrive_is_sent_again(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with way_to(served.url) as way:
        await way.close()
        sleep = Sleeps(way.open)
        async with HttpStore(HttpConfig(url=way.url, sleep=sleep, again=(0.1, 0.4))) as store:
            await store.ping()
        assert sleep.slept == [0.1]


async def test_a_server_that_is_away_is_named_and_may_come_back() -> None:
    sleep = Sleeps()
    config = HttpConfig(url="http://127.0.0.1:1", sleep=sleep, again=(0.1, 0.4))
    async with HttpStore(config) as store:
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached") as it:
            await store.ping()
        assert may_pass(it.value)
        with pytest.raises(StoreUnavailableError):
            _ = store.capabilities
    assert sleep.slept == [0.1, 0.4]


async def test_what_may_have_arrived_is_not_sent_again(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    """Whoever asked decides; a repeat is harmless."""
    async with way_to(served.url) as way:
        sleep = Sleeps()
        async with HttpStore(HttpConfig(url=way.url, sleep=sleep)) as store:
            way.cut_after = 10
            job = make_job()
            with pytest.raises(StoreUnavailableError) as it:
                await store.enqueue([job])
            assert may_pass(it.value)
            assert (way.connections, sleep.slept) == (1, [])
            way.cut_after = None
            [answer] = await store.enqueue([job])
            assert answer.status is EnqueueStatus.CREATED
            assert (await get_one(store, job.id)).id == job.id


async def test_an_answer_that_does_not_come_is_not_awaited_for_ever(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with way_to(served.url) as way, HttpStore(HttpConfig(url=way.url, timeout=0.1)) as store:
        way.silent = True
        with pytest.raises(StoreUnavailableError, match=r"no answer within 0\.1 s"):
            await store.ping()


async def test_a_server_that_asks_for_patience_gets_it(tmp_path: Path) -> None:
    slow = ServerConfig(door=Door.KEYS, rate=1 / 600, burst=2)
    with server(tmp_path, slow) as one:
        loop = one.loop

        async def make() -> str:
            return (await Keys(one.app.client().store).create("x", [Role.ADMIN]))[1]

        key = asyncio.run_coroutine_threadsafe(make(), loop).result(PATIENCE)
        sleep = Sleeps()
        config = HttpConfig(url=one.url, key=key, sleep=sleep, patience=1800)
        async with HttpStore(config) as store:
            await store.ping()
            await store.ping()
            with pytest.raises(StoreUnavailableError, match="asks too often"):
                await store.ping()
        assert len(sleep.slept) == 3
        assert all(500 < seconds <= 600 for seconds in sleep.slept)


# -- answers that are none


@pytest.mark.parametrize(
    ("response", "kind", "told", "passes"),
    [
        (httpx.Response(502, text="<html>"), StoreUnavailableError, "HTTP 502", True),
        (httpx.Response(404, text="nothing"), StoreUnavailableError, "no Windlass server", True),
        (httpx.Response(200, text="?"), StoreUnavailableError, "HTTP 200", True),
        (httpx.Response(401, text="no"), StoreDeniedError, "refuses key 0123456789ab", False),
        (httpx.Response(403, text="no"), StoreDeniedError, "key 0123456789ab do this", False),
        (httpx.Response(308, headers={"location": "https://x/"}), StoreDeniedError, "https://x/",
         False),
        (httpx.Response(400, json={"code": "protocol", "detail": "it is 2"}), SchemaError,
         "another version: it is 2", False),
        (httpx.Response(503, json={"code": "schema", "detail": "old"}), SchemaError, "old", False),
        (httpx.Response(503, json={"code": "store_unavailable", "detail": "full"}),
         StoreUnavailableError, "full", True),
        (httpx.Response(500, json={"code": "internal", "detail": "x"}), StoreUnavailableError,
         "HTTP 500", True),
        (httpx.Response(409, json={"code": "conflict", "detail": "taken"}), ConflictError, "taken",
         False),
        (httpx.Response(422, json={"code": "invalid_argument", "detail": "wrong"}),
         InvalidArgumentError, "wrong", False),
        (httpx.Response(500, json=["x"]), StoreUnavailableError, "HTTP 500", True),
        (httpx.Response(500, text="{", headers={"content-type": "application/json"}),
         StoreUnavailableError, "HTTP 500", True),
    ],
)  # fmt: skip
def test_each_answer_becomes_the_error_that_it_means(
    response: httpx.Response, kind: type[Exception], told: str, passes: bool
) -> None:
    error = refused(HERE, response)
    assert type(error) is kind
    assert told in str(error)
    assert SECRET not in str(error)
    if isinstance(error, StoreError):
        assert may_pass(error) is passes


def test_a_certificate_that_is_wrong_does_not_pass() -> None:
    error = httpx.ConnectError("x")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    with pytest.raises(StoreUnavailableError, match="certificate cannot be trusted") as it:
        raise lost(HERE, error) from os_error(error)
    assert not may_pass(it.value)


async def test_what_no_windlass_answers_is_told_as_that() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, HttpStore(HttpConfig(url=f"http://127.0.0.1:{port}")) as store:
        for call in (store.ping(), store.claim(Claim(token=uuid7(), worker="w", queues=[("q", 1)])),
                     store.hello()):  # fmt: skip
            with pytest.raises(StoreUnavailableError, match="says HTTP 200"):
                await call
        once = HttpStore(HttpConfig(url=f"http://127.0.0.1:{port}", reconnect=()))
        async with once:
            with pytest.raises(StoreUnavailableError, match="says HTTP 200"):
                await anext(once.tail(uuid7()))


@pytest.mark.parametrize("alive", [True, False])
async def test_a_quiet_job_is_followed_for_as_long_as_the_server_shows_life(alive: bool) -> None:
    """Proxies end what lasts long: how often, says nothing about the job."""
    asked: list[int] = []
    head = b"HTTP/1.1 200 OK\r\nWindlass-Keepalive: 10\r\nConnection: close\r\n\r\n"

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.append(1)
        if len(asked) > 5:
            writer.write(head.replace(b"200 OK", b"204 No Content"))
        else:
            writer.write(head + (b": keepalive: now\n\n" if alive else b""))
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    config = HttpConfig(url=f"http://127.0.0.1:{port}", reconnect=(0.001, 0.001))
    async with other, HttpStore(config) as store:
        if alive:
            assert [event async for event in store.tail(uuid7())] == []
        else:
            with pytest.raises(StoreUnavailableError, match="again and again"):
                await anext(store.tail(uuid7()))
    assert len(asked) == (6 if alive else 3)


# -- keys


@pytest.mark.parametrize(
    "url",
    [
        f"https://{KEY}@host",
        f"https://x:{KEY}@host",
        f"https://host?key={SECRET}",
        f"https://host/{KEY}#x",
        f"https://host:{KEY}",
        "https://",
        "http://host:0",
        "https://host:99999",
    ],
)
def test_a_key_has_no_place_in_a_url(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        open_store(url)
    assert SECRET not in str(raised.value)


def test_a_key_that_cannot_be_one_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidArgumentError, match="form of an API key") as raised:
        open_store("https://host", key=SECRET)
    assert SECRET not in str(raised.value)
    with pytest.raises(InvalidArgumentError, match="a key opens a server"):
        open_store("memory:", key=KEY)


async def test_no_key_is_in_any_text_or_log(
    served: Served, open_it: Callable[[], HttpStore], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = HttpConfig(url=served.url, key=KEY)
    async with HttpStore(config) as store:
        with pytest.raises(StoreDeniedError) as raised:
            await store.ping()
    texts = [str(raised.value), repr(raised.value), repr(store), repr(config), str(config)]
    texts += [record.getMessage() + str(record.args) for record in caplog.records]
    assert len(texts) > 5
    assert not [text for text in texts if SECRET in text]


# -- large calls


async def test_a_call_that_is_too_large_goes_in_parts_and_each_item_by_itself(
    tmp_path: Path,
) -> None:
    with server(tmp_path, ServerConfig(door=Door.OPEN, max_body=2**21)) as one:
        async with HttpStore(HttpConfig(url=one.url)) as store:
            half = b'"' + b"x" * 2**19 + b'"'
            jobs = [make_job(payload=half, unique_key=str(n % 7)) for n in range(8)]
            answers = await store.enqueue(jobs)
            assert [one.status for one in answers[:7]] == [EnqueueStatus.CREATED] * 7
            assert answers[7].status is EnqueueStatus.DUPLICATE
            assert [one.new for one in answers] == jobs

            together = await store.enqueue(
                [make_job(payload=half) for _ in range(4)], together=True
            )
            assert {type(one.error) for one in together} == {TooLargeError}

            rows = await claim_all(store)
            children = [make_job(payload=half) for _ in range(4)]
            wishes = [
                settle(
                    row, Succeeded(result=half), random=even, children=children if n == 2 else ()
                )
                for n, row in enumerate(rows)
            ]
            settled = await store.apply(wishes)
            assert [one.status for one in settled] == [
                Status.APPLIED if n != 2 else Status.REFUSED for n in range(7)
            ]
            assert isinstance(settled[2].error, TooLargeError)
            large = [Put(kind="x", key=str(n), value=half) for n in range(8)]
            assert all(one.applied for one in await store.put_records(large))


@pytest.mark.parametrize("lost", [{1}, {2}, {3}, {2, 4}])
async def test_words_in_parts_are_recorded_once_whichever_answer_is_lost(
    tmp_path: Path, lost: set[int]
) -> None:
    """The first answer says how much the server takes; each of the others is one of two parts."""
    with server(tmp_path, ServerConfig(door=Door.OPEN, max_body=2**20 + 2**19)) as one:
        async with way_to(one.url) as way, HttpStore(HttpConfig(url=one.url)) as direct:
            running = [await start_one(direct) for _ in range(8)]
            words = [f"{n} " + "x" * 60_000 for n in range(1, 5)]
            sayings = [
                Saying(row.lease, [note(n, text) for n, text in enumerate(words, 1)])
                for row in running
            ]
            way.lost = lost
            async with HttpStore(HttpConfig(url=way.url)) as store:
                for _ in lost:
                    with pytest.raises(StoreUnavailableError):
                        await store.record(sayings)
                answers = await store.record(sayings)
            assert [answer.status for answer in answers] == [Status.APPLIED] * 8
            for row in running:
                events = await read_events(direct, row.id)
                assert [event.seq for event in events] == list(range(1, 8))
                said = [event.body for event in events if event.type is EventType.LOG]
                assert said == [text.encode() for text in words]


# -- handles


async def test_capabilities_are_the_servers_and_known_before_the_first_call(
    open_it: Callable[[], HttpStore],
) -> None:
    store = open_it()
    able = store.capabilities
    assert (able.durable, able.fifo, able.push_wakeups) == (False, True, True)
    assert (able.transactional, able.atomic_batch) == (False, False)
    await store.close()


def test_an_app_may_be_used_by_one_event_loop_after_the_other(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    app = Windlass(served.url)

    @app.task(name="x")
    async def x() -> None: ...

    ids = [asyncio.run(_enqueued(x)), x.enqueue().id, asyncio.run(_enqueued(x))]
    assert [app.job(id_).id for id_ in ids] == ids
    app.close()


async def _enqueued(task: Any) -> UUID:
    id_: UUID = (await task.aenqueue()).id
    return id_


async def test_a_closed_handle_says_so(open_it: Callable[[], HttpStore]) -> None:
    store = open_it()
    await store.ping()
    await store.close()
    for call in (store.ping(), anext(store.tail(uuid7()))):
        with pytest.raises(StoreUnavailableError, match="is closed"):
            await call


async def test_who_waited_at_a_server_that_began_anew_looks_again(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with open_it() as store:
        await claim_all(store)
        asyncio.run_coroutine_threadsafe(served.site.news.close(), served.loop).result(PATIENCE)
        async with asyncio.timeout(PATIENCE):
            assert await store.wait(["default"], 60)


async def test_who_comes_from_another_server_is_woken_by_news_and_not_again_and_again(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with open_it() as store:
        await claim_all(store)
        store._news = "another.7"
        clock = asyncio.get_running_loop().time
        began = clock()
        assert await store.wait(["default"], 0.2)
        assert clock() - began >= 0.19
        waiting = asyncio.ensure_future(store.wait(["default"], 60))
        await enqueue_one(store)
        async with asyncio.timeout(PATIENCE):
            assert await waiting


# -- following


async def test_a_tail_through_broken_connections_equals_the_log(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with open_it() as store, way_to(served.url) as way:
        job = await start_one(store)
        for n in range(1, 60):
            await say(store, job, note(n, "\N{LINE SEPARATOR}\n" * 20))
        await settle_one(store, job, Succeeded())
        way.cut_after = 3000
        sleep = Sleeps()
        async with HttpStore(HttpConfig(url=way.url, sleep=sleep)) as afar:
            told = [event async for event in afar.tail(job.id)]
        assert told == await read_events(store, job.id)
        assert way.connections > 5
        assert sleep.slept == [1.0] * (way.connections - 1), "each event begins the count anew"


async def test_a_tail_gives_up_after_five_attempts_and_goes_on_from_where_it_was(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with open_it() as store, way_to(served.url) as way:
        job = await start_one(store)
        sleep = Sleeps()
        async with HttpStore(HttpConfig(url=way.url, sleep=sleep)) as afar:
            tail = afar.tail(job.id)
            assert [(await anext(tail)).seq for _ in range(3)] == [1, 2, 3]
            await way.close()
            with pytest.raises(StoreUnavailableError):
                await anext(tail)
            assert sleep.slept == [1.0, 2.0, 4.0, 8.0, 16.0]
            await way.open()
            await settle_one(store, job, Succeeded())
            assert [event.seq async for event in afar.tail(job.id, 3)] == [4]


async def test_a_connection_that_died_without_a_word_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ServerConfig(door=Door.OPEN, keepalive=0.05)
    usual, patient = http_tail.SILENCE, PATIENCE / quick.keepalive
    monkeypatch.setattr(http_tail, "SILENCE", patient)  # but for the connection that is to be lost
    with server(tmp_path, quick) as one:
        async with HttpStore(HttpConfig(url=one.url)) as store, way_to(one.url) as way:
            job = await start_one(store)

            noticed = asyncio.Event()

            def mended() -> None:
                monkeypatch.setattr(http_tail, "SILENCE", patient)
                way.silent = False
                noticed.set()

            sleep = Sleeps(mended)
            config = HttpConfig(url=way.url, sleep=sleep, connect=PATIENCE)
            async with HttpStore(config) as afar:
                tail = afar.tail(job.id)
                assert [(await anext(tail)).seq for _ in range(3)] == [1, 2, 3]
                way.silent = True
                monkeypatch.setattr(http_tail, "SILENCE", usual)
                fourth = asyncio.ensure_future(anext(tail))
                async with asyncio.timeout(PATIENCE):
                    await noticed.wait()
                    await settle_one(store, job, Succeeded())
                    assert (await fourth).seq == 4
                    assert [event async for event in tail] == []
            assert sleep.slept == [1.0]


async def test_a_tail_with_a_key_that_was_revoked_ends_for_good(tmp_path: Path) -> None:
    with server(tmp_path, ServerConfig(door=Door.KEYS, trust=0.05)) as one:

        async def make() -> tuple[str, str]:
            key, token = await Keys(one.app.client().store).create("x", [Role.ADMIN])
            return key.id, token

        async def revoke(key_id: str) -> None:
            await Keys(one.app.client().store).revoke(key_id)

        def there(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, one.loop).result(PATIENCE)

        key_id, token = there(make())
        config = HttpConfig(url=one.url, key=token, sleep=Sleeps())
        async with HttpStore(config) as store:
            job = await enqueue_one(store)
            tail = store.tail(job.id)
            await anext(tail)
            await anext(tail)
            there(revoke(key_id))
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(StoreDeniedError, match=f"key {key_id} was revoked"):
                    await anext(tail)


def event(seq: int, percent: int | None = None, kind: EventType = EventType.LOG) -> Event:
    data = {} if percent is None else {"progressPct": percent}
    return Event(job_id=uuid7(), seq=seq, at=0, type=kind, data=data)


def test_what_comes_twice_or_late_is_dropped_and_what_comes_early_breaks_the_stream() -> None:
    sequel = Sequel(2)
    assert [sequel.take(event(seq)) is None for seq in (1, 2, 3, 3, 2, 4)] == [
        True, True, False, True, True, False,
    ]  # fmt: skip
    with pytest.raises(StoreUnavailableError, match=r"event 6 .* came after 4"):
        sequel.take(event(6))
    resync = sequel.take(event(9, kind=EventType.RESYNC))
    assert resync is not None
    assert sequel.take(event(10)) is not None


def test_progress_never_falls() -> None:
    sequel = Sequel(0)
    told = [sequel.take(event(n, percent)) for n, percent in enumerate([5, 40, 30, None, 50], 1)]
    assert [one and one.data.get("progressPct") for one in told] == [5, 40, 40, None, 50]


# -- many at once


async def test_many_calls_at_once_share_a_few_connections(
    served: Served, open_it: Callable[[], HttpStore]
) -> None:
    async with way_to(served.url) as way:
        async with HttpStore(HttpConfig(url=way.url)) as afar:
            jobs = await asyncio.gather(*(enqueue_one(afar) for _ in range(200)))
            running = await claim_all(afar, limit=1000)
            sayings = [Saying(row.lease, [note(1, "x")]) for row in running]
            answers = await asyncio.gather(*(afar.record([one]) for one in sayings))
        assert len({job.id for job in jobs}) == len(running) == 200
        assert {answer.status for [answer] in answers} == {Status.APPLIED}
        assert way.connections <= 64
