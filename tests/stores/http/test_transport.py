"""HTTP store with a server that is down, slow, denies access, or is not a Windlass server."""

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
from tests.server.conftest import WAIT_TIMEOUT, LiveServer
from tests.stores.http_server import serve_store, server
from tests.stores.network_proxy import proxy_to

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
from windlass.core.versioned_record import Put
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.store import AttemptRecords
from windlass.stores import is_transient, open_store
from windlass.stores.http import HttpConfig, HttpStore
from windlass.stores.http import event_stream as http_tail
from windlass.stores.http.errors import connection_error, os_error, response_error
from windlass.stores.http.event_stream import EventSequence
from windlass.stores.memory import MemoryStore
from windlass.testing import make_job
from windlass.testing.factories import (
    append_records,
    claim_all,
    enqueue_one,
    get_one,
    log_record,
    no_jitter,
    read_events,
    settle_one,
    start_one,
)

SECRET = "s" * 43
KEY = f"wl_0123456789ab_{SECRET}"
LOCAL_SERVER = HttpConfig(url="http://127.0.0.1:1", key=KEY)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with server(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def open_handle(served: LiveServer, tmp_path: Path) -> Iterator[Callable[[], HttpStore]]:
    with serve_store(served, MemoryStore(), tmp_path) as opened:
        yield opened


class RecordedSleeps:
    """Records sleeps, which take no time; calls `then` during each."""

    def __init__(self, then: Callable[[], Any] = lambda: None) -> None:
        self.slept: list[float] = []
        self._then = then

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        done = self._then()
        if asyncio.iscoroutine(done):
            await done
        await asyncio.sleep(0)


# -- unavailable servers


async def test_a_request_that_was_not_sent_is_retried(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with proxy_to(served.url) as proxy:
        await proxy.close()
        sleep = RecordedSleeps(proxy.open)
        async with HttpStore(
            HttpConfig(url=proxy.url, sleep=sleep, connect_retries=(0.1, 0.4))
        ) as store:
            await store.ping()
        assert sleep.slept == [0.1]


async def test_an_unreachable_server_raises_a_transient_error_with_its_name() -> None:
    sleep = RecordedSleeps()
    config = HttpConfig(url="http://127.0.0.1:1", sleep=sleep, connect_retries=(0.1, 0.4))
    async with HttpStore(config) as store:
        with pytest.raises(
            StoreUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"
        ) as raised:
            await store.ping()
        assert is_transient(raised.value)
        with pytest.raises(StoreUnavailableError):
            _ = store.capabilities
    assert sleep.slept == [0.1, 0.4]


async def test_a_request_that_may_have_arrived_is_not_retried(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    """The caller decides; a repeat is harmless."""
    async with proxy_to(served.url) as proxy:
        sleep = RecordedSleeps()
        async with HttpStore(HttpConfig(url=proxy.url, sleep=sleep)) as store:
            proxy.cut_after = 10
            job = make_job()
            with pytest.raises(StoreUnavailableError) as raised:
                await store.enqueue([job])
            assert is_transient(raised.value)
            assert (proxy.connections, sleep.slept) == (1, [])
            proxy.cut_after = None
            [answer] = await store.enqueue([job])
            assert answer.status is EnqueueStatus.CREATED
            assert (await get_one(store, job.id)).id == job.id


async def test_a_missing_response_times_out(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with (
        proxy_to(served.url) as proxy,
        HttpStore(HttpConfig(url=proxy.url, timeout=0.1)) as store,
    ):
        proxy.silent = True
        with pytest.raises(StoreUnavailableError, match=r"did not respond within 0\.1 s"):
            await store.ping()


async def test_a_rate_limited_call_waits_and_retries(tmp_path: Path) -> None:
    limited = ServerConfig(auth=AuthMode.KEYS, rate=1 / 600, burst=2)
    with server(tmp_path, limited) as served:
        loop = served.loop

        async def make() -> str:
            return (await ApiKeys(served.app.client().store).create("x", [Role.ADMIN]))[1]

        key = asyncio.run_coroutine_threadsafe(make(), loop).result(WAIT_TIMEOUT)
        sleep = RecordedSleeps()
        config = HttpConfig(url=served.url, key=key, sleep=sleep, rate_limit_wait=1800)
        async with HttpStore(config) as store:
            await store.ping()
            await store.ping()
            with pytest.raises(StoreUnavailableError, match="exceeds its request rate"):
                await store.ping()
        assert len(sleep.slept) == 3
        assert all(500 < seconds <= 600 for seconds in sleep.slept)


# -- error responses


@pytest.mark.parametrize(
    ("response", "kind", "message", "transient"),
    [
        (httpx.Response(502, text="<html>"), StoreUnavailableError, "HTTP 502", True),
        (httpx.Response(404, text="nothing"), StoreUnavailableError, "no Windlass server", True),
        (httpx.Response(200, text="?"), StoreUnavailableError, "HTTP 200", True),
        (httpx.Response(401, text="no"), StoreDeniedError, "rejected key 0123456789ab", False),
        (httpx.Response(403, text="no"), StoreDeniedError, "denied this to key 0123456789ab",
         False),
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
def test_each_response_becomes_its_error(
    response: httpx.Response, kind: type[Exception], message: str, transient: bool
) -> None:
    error = response_error(LOCAL_SERVER, response)
    assert type(error) is kind
    assert message in str(error)
    assert SECRET not in str(error)
    if isinstance(error, StoreError):
        assert is_transient(error) is transient


def test_an_untrusted_certificate_is_not_transient() -> None:
    error = httpx.ConnectError("x")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    with pytest.raises(StoreUnavailableError, match="certificate is not trusted") as raised:
        raise connection_error(LOCAL_SERVER, error) from os_error(error)
    assert not is_transient(raised.value)


async def test_a_response_of_another_server_is_reported() -> None:
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
            with pytest.raises(StoreUnavailableError, match="HTTP 200"):
                await call
        once = HttpStore(HttpConfig(url=f"http://127.0.0.1:{port}", reconnect_delays=()))
        async with once:
            with pytest.raises(StoreUnavailableError, match="HTTP 200"):
                await anext(once.tail(uuid7()))


@pytest.mark.parametrize("alive", [True, False])
async def test_a_quiet_job_is_tailed_while_the_server_sends_keepalives(alive: bool) -> None:
    """Proxies close long responses; the number of reconnects means nothing for the job."""
    requests: list[int] = []
    head = b"HTTP/1.1 200 OK\r\nWindlass-Keepalive: 10\r\nConnection: close\r\n\r\n"

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requests.append(1)
        if len(requests) > 5:
            writer.write(head.replace(b"200 OK", b"204 No Content"))
        else:
            writer.write(head + (b": keepalive: now\n\n" if alive else b""))
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    config = HttpConfig(url=f"http://127.0.0.1:{port}", reconnect_delays=(0.001, 0.001))
    async with other, HttpStore(config) as store:
        if alive:
            assert [event async for event in store.tail(uuid7())] == []
        else:
            with pytest.raises(StoreUnavailableError, match="repeatedly ends"):
                await anext(store.tail(uuid7()))
    assert len(requests) == (6 if alive else 3)


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
def test_a_key_in_a_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        open_store(url)
    assert SECRET not in str(raised.value)


def test_a_malformed_key_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidArgumentError, match="malformed API key") as raised:
        open_store("https://host", key=SECRET)
    assert SECRET not in str(raised.value)
    with pytest.raises(InvalidArgumentError, match="a key applies only to a server"):
        open_store("memory:", key=KEY)


async def test_no_message_or_log_contains_the_key(
    served: LiveServer, open_handle: Callable[[], HttpStore], caplog: pytest.LogCaptureFixture
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


async def test_a_large_call_is_split_and_large_items_are_refused(
    tmp_path: Path,
) -> None:
    with server(tmp_path, ServerConfig(auth=AuthMode.OPEN, max_body=2**21)) as served:
        async with HttpStore(HttpConfig(url=served.url)) as store:
            half = b'"' + b"x" * 2**19 + b'"'
            jobs = [make_job(payload=half, unique_key=str(n % 7)) for n in range(8)]
            answers = await store.enqueue(jobs)
            assert [answer.status for answer in answers[:7]] == [EnqueueStatus.CREATED] * 7
            assert answers[7].status is EnqueueStatus.DUPLICATE
            assert [answer.new for answer in answers] == jobs

            together = await store.enqueue([make_job(payload=half) for _ in range(4)], atomic=True)
            assert {type(answer.error) for answer in together} == {TooLargeError}

            rows = await claim_all(store)
            children = [make_job(payload=half) for _ in range(4)]
            transitions = [
                settle(
                    row,
                    Succeeded(result=half),
                    random=no_jitter,
                    children=children if n == 2 else (),
                )
                for n, row in enumerate(rows)
            ]
            settled = await store.apply(transitions)
            assert [answer.status for answer in settled] == [
                Status.APPLIED if n != 2 else Status.REFUSED for n in range(7)
            ]
            assert isinstance(settled[2].error, TooLargeError)
            large = [Put(kind="x", key=str(n), value=half) for n in range(8)]
            assert all(answer.applied for answer in await store.put_records(large))


@pytest.mark.parametrize("lost", [{1}, {2}, {3}, {2, 4}])
async def test_split_records_are_stored_once_whichever_response_is_lost(
    tmp_path: Path, lost: set[int]
) -> None:
    """The first response is the server's max_body; each of the others is one of two parts."""
    with server(tmp_path, ServerConfig(auth=AuthMode.OPEN, max_body=2**20 + 2**19)) as served:
        async with proxy_to(served.url) as proxy, HttpStore(HttpConfig(url=served.url)) as direct:
            running = [await start_one(direct) for _ in range(8)]
            words = [f"{n} " + "x" * 60_000 for n in range(1, 5)]
            attempt_records = [
                AttemptRecords(row.lease, [log_record(n, text) for n, text in enumerate(words, 1)])
                for row in running
            ]
            proxy.lost = lost
            async with HttpStore(HttpConfig(url=proxy.url)) as store:
                for _ in lost:
                    with pytest.raises(StoreUnavailableError):
                        await store.record(attempt_records)
                answers = await store.record(attempt_records)
            assert [answer.status for answer in answers] == [Status.APPLIED] * 8
            for row in running:
                events = await read_events(direct, row.id)
                assert [event.seq for event in events] == list(range(1, 8))
                logged = [event.body for event in events if event.type is EventType.LOG]
                assert logged == [text.encode() for text in words]


# -- handles


async def test_capabilities_before_the_first_call_are_those_of_the_server(
    open_handle: Callable[[], HttpStore],
) -> None:
    store = open_handle()
    found = store.capabilities
    assert (found.durable, found.fifo, found.push_wakeups) == (False, True, True)
    assert (found.transactional, found.atomic_batch) == (False, False)
    await store.close()


def test_an_http_app_works_in_successive_event_loops(
    served: LiveServer, open_handle: Callable[[], HttpStore]
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


async def test_a_closed_handle_raises(open_handle: Callable[[], HttpStore]) -> None:
    store = open_handle()
    await store.ping()
    await store.close()
    for call in (store.ping(), anext(store.tail(uuid7()))):
        with pytest.raises(StoreUnavailableError, match="is closed"):
            await call


async def test_a_wait_returns_when_the_server_restarts(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with open_handle() as store:
        await claim_all(store)
        asyncio.run_coroutine_threadsafe(served.context.wakeups.close(), served.loop).result(
            WAIT_TIMEOUT
        )
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await store.wait(["default"], 60)


async def test_a_cursor_of_another_server_wakes_once_and_then_on_new_work(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with open_handle() as store:
        await claim_all(store)
        store._wakeup_cursor = "another.7"
        clock = asyncio.get_running_loop().time
        started = clock()
        assert await store.wait(["default"], 0.2)
        assert clock() - started >= 0.19
        waiting = asyncio.ensure_future(store.wait(["default"], 60))
        await enqueue_one(store)
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await waiting


# -- tails


async def test_a_tail_through_broken_connections_equals_the_log(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with open_handle() as store, proxy_to(served.url) as proxy:
        job = await start_one(store)
        for n in range(1, 60):
            await append_records(store, job, log_record(n, "\N{LINE SEPARATOR}\n" * 20))
        await settle_one(store, job, Succeeded())
        proxy.cut_after = 3000
        sleep = RecordedSleeps()
        async with HttpStore(HttpConfig(url=proxy.url, sleep=sleep)) as remote:
            events = [event async for event in remote.tail(job.id)]
        assert events == await read_events(store, job.id)
        assert proxy.connections > 5
        assert sleep.slept == [1.0] * (proxy.connections - 1), "each event resets the delays"


async def test_a_tail_gives_up_after_five_reconnects_and_can_resume(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with open_handle() as store, proxy_to(served.url) as proxy:
        job = await start_one(store)
        sleep = RecordedSleeps()
        async with HttpStore(HttpConfig(url=proxy.url, sleep=sleep)) as remote:
            tail = remote.tail(job.id)
            assert [(await anext(tail)).seq for _ in range(3)] == [1, 2, 3]
            await proxy.close()
            with pytest.raises(StoreUnavailableError):
                await anext(tail)
            assert sleep.slept == [1.0, 2.0, 4.0, 8.0, 16.0]
            await proxy.open()
            await settle_one(store, job, Succeeded())
            assert [event.seq async for event in remote.tail(job.id, 3)] == [4]


async def test_a_silent_connection_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ServerConfig(auth=AuthMode.OPEN, keepalive=0.05)
    usual, patient = http_tail.MAX_SILENT_INTERVALS, WAIT_TIMEOUT / quick.keepalive
    # Except for the connection that the test drops.
    monkeypatch.setattr(http_tail, "MAX_SILENT_INTERVALS", patient)
    with server(tmp_path, quick) as served:
        async with HttpStore(HttpConfig(url=served.url)) as store, proxy_to(served.url) as proxy:
            job = await start_one(store)

            noticed = asyncio.Event()

            def restored() -> None:
                monkeypatch.setattr(http_tail, "MAX_SILENT_INTERVALS", patient)
                proxy.silent = False
                noticed.set()

            sleep = RecordedSleeps(restored)
            config = HttpConfig(url=proxy.url, sleep=sleep, connect_timeout=WAIT_TIMEOUT)
            async with HttpStore(config) as remote:
                tail = remote.tail(job.id)
                assert [(await anext(tail)).seq for _ in range(3)] == [1, 2, 3]
                proxy.silent = True
                monkeypatch.setattr(http_tail, "MAX_SILENT_INTERVALS", usual)
                fourth = asyncio.ensure_future(anext(tail))
                async with asyncio.timeout(WAIT_TIMEOUT):
                    await noticed.wait()
                    await settle_one(store, job, Succeeded())
                    assert (await fourth).seq == 4
                    assert [event async for event in tail] == []
            assert sleep.slept == [1.0]


async def test_a_tail_ends_when_its_key_is_revoked(tmp_path: Path) -> None:
    with server(tmp_path, ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)) as served:

        async def make() -> tuple[str, str]:
            key, token = await ApiKeys(served.app.client().store).create("x", [Role.ADMIN])
            return key.id, token

        async def revoke(key_id: str) -> None:
            await ApiKeys(served.app.client().store).revoke(key_id)

        def there(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, served.loop).result(WAIT_TIMEOUT)

        key_id, token = there(make())
        config = HttpConfig(url=served.url, key=token, sleep=RecordedSleeps())
        async with HttpStore(config) as store:
            job = await enqueue_one(store)
            tail = store.tail(job.id)
            await anext(tail)
            await anext(tail)
            there(revoke(key_id))
            async with asyncio.timeout(WAIT_TIMEOUT):
                with pytest.raises(StoreDeniedError, match=f"key {key_id} was revoked"):
                    await anext(tail)


def event(seq: int, percent: int | None = None, kind: EventType = EventType.LOG) -> Event:
    data = {} if percent is None else {"progressPct": percent}
    return Event(job_id=uuid7(), seq=seq, at=0, type=kind, data=data)


def test_duplicate_events_are_dropped_and_a_gap_breaks_the_stream() -> None:
    sequence = EventSequence(2)
    assert [sequence.accept(event(seq)) is None for seq in (1, 2, 3, 3, 2, 4)] == [
        True, True, False, True, True, False,
    ]  # fmt: skip
    with pytest.raises(StoreUnavailableError, match="6 follows 4"):
        sequence.accept(event(6))
    resync = sequence.accept(event(9, kind=EventType.RESYNC))
    assert resync is not None
    assert sequence.accept(event(10)) is not None


def test_progress_never_falls() -> None:
    sequence = EventSequence(0)
    events = [
        sequence.accept(event(n, percent)) for n, percent in enumerate([5, 40, 30, None, 50], 1)
    ]
    assert [event and event.data.get("progressPct") for event in events] == [5, 40, 40, None, 50]


# -- concurrency


async def test_many_calls_at_once_share_a_few_connections(
    served: LiveServer, open_handle: Callable[[], HttpStore]
) -> None:
    async with proxy_to(served.url) as proxy:
        async with HttpStore(HttpConfig(url=proxy.url)) as remote:
            jobs = await asyncio.gather(*(enqueue_one(remote) for _ in range(200)))
            running = await claim_all(remote, limit=1000)
            attempt_records = [AttemptRecords(row.lease, [log_record(1, "x")]) for row in running]
            answers = await asyncio.gather(*(remote.record([entry]) for entry in attempt_records))
        assert len({job.id for job in jobs}) == len(running) == 200
        assert {answer.status for [answer] in answers} == {Status.APPLIED}
        assert proxy.connections <= 64
