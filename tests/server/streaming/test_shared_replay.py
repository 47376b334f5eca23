"""Many who come at once: they share what is read for them, and others go on as if nothing were."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest
from tests.server.conftest import Served, enqueue, make_app, serving, until

from windlass.client import Client
from windlass.core.codec import JsonCodec
from windlass.core.decisions.outcome import Succeeded
from windlass.core.query.job_query import Query
from windlass.server.auth.authenticator import Authenticator
from windlass.server.auth.caller import ANONYMOUS_ADMIN
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.job_channel import FANOUT_BATCH
from windlass.server.streaming.list_watch import MAX_POLLS, ListWatches
from windlass.server.streaming.sse import EventStream
from windlass.server.streaming.stream_admission import MAX_OPENING
from windlass.server.streaming.stream_filter import StreamFilter
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import append_records, log_record, settle_one, start_one
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
MANY = 50
SENT_AWAY = b"HTTP/1.1 200 OK", b"d\r\nretry: 1000\n\n\r\n0\r\n\r\n"


class Counted(WrappedStore):
    """Counts what is asked, and how much of it is under way; all of it may be held up."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.asked: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self.held = {"get"}
        self.free = Event()
        self.free.set()

    def wrap(self, store: Store) -> Counted:
        return self

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.asked[verb] += 1
        self.under_way[verb] += 1
        while verb in self.held and not self.free.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)
        self.under_way[verb] -= 1
        return await call()


async def test_concurrent_clients_share_one_read_of_the_log() -> None:
    store = Counted(MemoryStore(clock=VirtualClock()))
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)
    for number in range(1, 21):
        await append_records(store, job, log_record(number, f"line {number}"))
    await settle_one(store, job, Succeeded())

    async def whole() -> list[bytes]:
        return [
            line.for_job_stream
            async for lines in hub.follow(job.id, StreamFilter())
            for line in lines
        ]

    alone = await whole()
    pages = store.asked["events"]
    found = await asyncio.gather(*(whole() for _ in range(MANY)))
    assert all(told == alone for told in found)
    assert len(alone) == 24
    assert store.asked["events"] == 2 * pages


async def test_a_disconnect_does_not_cancel_a_shared_read() -> None:
    store = Counted(MemoryStore(clock=VirtualClock()))
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)

    async def first() -> list[int]:
        async with contextlib.aclosing(hub.follow(job.id, StreamFilter())) as lines:
            return [line.seq for line in await anext(lines)]

    leaving, staying = asyncio.create_task(first()), asyncio.create_task(first())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == [1, 2, 3]


async def test_fan_out_to_many_subscribers_yields_to_the_event_loop() -> None:
    """What is to be done in the loop meanwhile is done before the last has the line."""
    store = MemoryStore(clock=VirtualClock())
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)
    had: list[int] = []  # how many had it, turn by turn

    async def listen(number: int) -> None:
        async with contextlib.aclosing(hub.follow(job.id, StreamFilter(after=3))) as lines:
            await anext(lines)
            had.append(number)

    count = 3 * FANOUT_BATCH
    readers = [asyncio.create_task(listen(number)) for number in range(count)]
    while sum(len(one.subscribers) for one in hub._channels.values()) < count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await append_records(store, job, log_record(1, "for all"))
    turns = []
    while len(had) < count:
        await asyncio.sleep(0)
        turns.append(len(had))
    await asyncio.gather(*readers)
    assert any(0 < turn < count for turn in turns)


async def test_many_streams_share_one_access_recheck() -> None:
    """Else all ask the store at once, again and again, and nobody else has a turn."""
    store = Counted(MemoryStore())
    auth = Authenticator(lambda: store, ServerConfig(auth=AuthMode.LOCAL, key_cache_ttl=0.2))
    assert await auth.still_authorized(ANONYMOUS_ADMIN)
    await asyncio.sleep(0.2)  # until what is known is to be looked up again
    store.asked.clear()
    store.held = {"list_records"}
    store.free.clear()
    asking = [asyncio.create_task(auth.still_authorized(ANONYMOUS_ADMIN)) for _ in range(MANY)]
    await asyncio.sleep(0.05)
    store.free.set()
    assert all(await asyncio.gather(*asking))
    assert store.asked["list_records"] < MANY / 5


async def watch(watches: ListWatches, query: Query) -> bytes:
    async with contextlib.aclosing(watches.snapshots(query, "list")) as told:
        return await anext(told)


async def test_a_hundred_subscribers_of_one_list_share_one_poll() -> None:
    store = Counted(MemoryStore())
    client = Client(store, JsonCodec())
    job = await start_one(store)
    watches = ListWatches(lambda: client, 0.05)
    found: list[bytes] = []

    async def tab() -> None:
        async with contextlib.aclosing(watches.snapshots(Query(owner="", limit=20))) as told:
            async for piece in told:
                found.append(piece)  # noqa: PERF401 - it is looked at while it grows

    store.asked.clear()
    began = asyncio.get_running_loop().time()
    tabs = [asyncio.create_task(tab()) for _ in range(100)]
    while len(found) < 100:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await settle_one(store, job, Succeeded())
    while len(found) < 200:  # noqa: ASYNC110
        await asyncio.sleep(0)
    looks = 1 + (asyncio.get_running_loop().time() - began) / 0.05
    for one in tabs:
        one.cancel()
    await asyncio.gather(*tabs, return_exceptions=True)
    assert store.asked["find"] <= looks
    assert all(b'"state":"succeeded"' in piece for piece in found[100:])


async def test_a_few_lists_are_polled_at_a_time() -> None:
    store = Counted(MemoryStore())
    store.held = {"find"}
    store.free.clear()
    client = Client(store, JsonCodec())
    watches = ListWatches(lambda: client, 1.0)
    tabs = [
        asyncio.create_task(watch(watches, Query(queues=frozenset({str(n)})))) for n in range(MANY)
    ]
    await asyncio.sleep(0.05)
    assert store.under_way["find"] == MAX_POLLS
    store.free.set()
    assert all(b"loaded" in told for told in await asyncio.gather(*tabs))
    assert store.asked["find"] == MANY


@contextlib.contextmanager
def many(served: Served, job: str) -> Iterator[list[socket.socket]]:
    """Requests for streams, all sent before any is answered."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    asked = [f"GET /api/jobs/{job}/events HTTP/1.1", "Host: localhost"]
    asked += ["Accept: text/event-stream", "", ""]
    made = [socket.create_connection((host, int(port))) for _ in range(MANY)]
    try:
        for one in made:
            one.sendall("\r\n".join(asked).encode())
        yield made
    finally:
        for one in made:
            one.close()


def answered(sockets: list[socket.socket]) -> list[socket.socket]:
    return select.select([one for one in sockets if one.fileno() >= 0], [], [], 0)[0]


def whole(one: socket.socket) -> tuple[bytes, bytes]:
    """Its first line, and its body; it stays to be read."""
    head, _, body = one.recv(4096, socket.MSG_PEEK).partition(b"\r\n\r\n")
    return head.splitlines()[0], body


def test_streams_are_opened_a_few_at_a_time_and_do_not_block_other_requests(tmp_path: Path) -> None:
    app, store = make_app(tmp_path), Counted(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        serving(tmp_path, app=app) as served,
        served.client() as web,
    ):
        job = enqueue(web, "add", a=1)["id"]
        store.free.clear()
        with many(served, job):
            until(lambda: len(served.server.server_state.connections) > MANY, "all have come")
            until(lambda: store.under_way["get"], "the first are let in")
            for _ in range(3):
                assert web.get("/api/jobs").json()["jobs"][0]["id"] == job
            assert store.under_way["get"] <= MAX_OPENING
            store.free.set()
            until(lambda: served.context.hub.open_streams == MANY, "all are let in")


def test_a_shutdown_answers_streams_that_wait_for_admission(tmp_path: Path) -> None:
    app, store = make_app(tmp_path), Counted(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        serving(tmp_path, app=app, grace=60) as served,
        served.client() as web,
    ):
        job = enqueue(web, "add", a=1)["id"]
        store.asked.clear()
        store.free.clear()
        with many(served, job) as sockets:
            until(lambda: len(served.server.server_state.tasks) == MANY, "all have asked")
            until(lambda: store.under_way["get"] == MAX_OPENING, "the first are let in")
            served.server.should_exit = True
            until(lambda: len(answered(sockets)) == MANY - MAX_OPENING, "the others are sent away")
            assert store.asked["get"] == MAX_OPENING, "nothing is asked for them"
            assert all(whole(one) == SENT_AWAY for one in answered(sockets))
            for one in answered(sockets):
                one.close()
            store.free.set()  # for the first ones there was time


def test_a_stream_disconnected_before_admission_reads_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, store = make_app(tmp_path), Counted(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        serving(tmp_path, app=app) as served,
        served.client() as web,
    ):
        job = enqueue(web, "add", a=1)["id"]
        store.asked.clear()
        store.free.clear()
        with many(served, job):
            until(lambda: len(served.server.server_state.tasks) == MANY, "all have asked")
            until(lambda: store.under_way["get"] == MAX_OPENING, "the first are let in")
        until(lambda: len(served.server.server_state.connections) <= 1, "all have left")
        store.free.set()
        with served.client() as other:
            read = {"Accept": "text/event-stream"}
            with other.stream("GET", f"/api/jobs/{job}/events", headers=read) as answer:
                assert answer.status_code == 200
        assert store.asked["get"] == MAX_OPENING + 1
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


async def test_no_keepalive_is_sent_while_a_send_is_blocked(tmp_path: Path) -> None:
    """Else the wait for a keepalive would begin when the first is nearly over, and so on."""
    app = make_app(tmp_path)
    config = ServerConfig(auth=AuthMode.LOCAL, keepalive=0.01, write_timeout=0.5)
    context = app.asgi(config).state.server_context
    sent: list[Any] = []

    async def feed() -> AsyncGenerator[bytes, None]:
        yield b"data: too much\n\n"

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body", b"").startswith(b"data"):
            await asyncio.Event().wait()

    async def receive() -> Any:
        return await asyncio.Event().wait()

    stream = EventStream(context, ANONYMOUS_ADMIN, feed(), None)
    await stream({"type": "http"}, receive, send)
    assert [one.get("body") for one in sent] == [None, b"retry: 1000\n\n", b"data: too much\n\n"]
    await app.aclose()
