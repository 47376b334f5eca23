"""`Windlass`: sync and async API, options, results, transactions, encryption, close."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import threading
from collections import UserList
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.workers import config, run_burst

from windlass import (
    ConflictError,
    Context,
    InvalidArgumentError,
    Job,
    JobFailedError,
    NotFoundError,
    State,
    StoreError,
    Windlass,
    fixed,
)
from windlass.core.codec import EncryptingCodec
from windlass.core.errors import ConfigurationError
from windlass.core.event import EventType
from windlass.core.ids import uuid7
from windlass.options import EnqueueOptions
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import SqliteStore

_NO_OPTIONS = EnqueueOptions()


@dataclass(frozen=True)
class Film:
    title: str
    at: datetime


def url_in(directory: Path) -> str:
    return f"sqlite:///{directory}/jobs.db?durability=off"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else url_in(tmp_path)


@pytest.fixture
async def app(url: str) -> AsyncIterator[Windlass]:
    app = Windlass(url)
    yield app
    await app.aclose()


@pytest.fixture
def plain(url: str) -> Iterator[Windlass]:
    """For tests without an event loop."""
    app = Windlass(url)
    yield app
    app.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Windlass]:
    app = Windlass(url_in(tmp_path))
    yield app
    app.close()


def burst(app: Windlass) -> None:
    """Run all queued jobs, from code without an event loop."""
    asyncio.run(asyncio.wait_for(app.worker(config(burst=True)).run(), WAIT_TIMEOUT))


# -- sync and async API


async def test_the_async_api_enqueues_waits_and_returns_the_result(app: Windlass) -> None:
    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    job = await shout.aenqueue("hello")
    assert (job.state, job.duplicate) == (State.QUEUED, False)
    await run_burst(app)
    assert await job.aresult(WAIT_TIMEOUT) == "HELLO"
    assert job.state is State.SUCCEEDED


def test_the_sync_api_works_without_an_event_loop(plain: Windlass) -> None:
    @plain.task
    def shout(text: str) -> str:
        return text.upper()

    job = shout.enqueue("hello")
    burst(plain)
    assert job.refresh().state is State.SUCCEEDED
    assert job.wait(WAIT_TIMEOUT).row.percent == 100
    assert job.result(WAIT_TIMEOUT) == "HELLO"


async def test_a_sync_call_in_a_running_event_loop_works_and_warns(app: Windlass) -> None:
    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    with pytest.warns(RuntimeWarning, match="blocks the running event loop") as caught:
        assert shout.enqueue("hello").state is State.QUEUED
    assert caught[0].filename == __file__  # the line to fix


@pytest.mark.filterwarnings("ignore:this call blocks the running event loop")
async def test_every_sync_method_works_in_a_running_event_loop(app: Windlass) -> None:
    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    job = shout.enqueue("hello")
    assert job.refresh().state is State.QUEUED
    held = shout.options(hold=True).enqueue("later")
    assert held.submit() is State.QUEUED
    assert held.cancel() is State.CANCELED
    await run_burst(app)
    assert job.result(WAIT_TIMEOUT) == "HELLO"


async def test_a_task_may_enqueue_by_the_sync_or_async_api(app: Windlass) -> None:
    @app.task
    def leaf(n: int) -> int:
        return n

    @app.task
    def parent() -> UUID:
        return leaf.enqueue(1).id

    @app.task
    async def async_parent() -> UUID:
        with pytest.raises(ConfigurationError, match="await the async method"):
            leaf.enqueue(2)  # would block the worker's own loop
        return (await leaf.aenqueue(3)).id

    jobs = [await parent.aenqueue(), await async_parent.aenqueue()]
    await run_burst(app)
    for job in jobs:
        child = await app.client().get(await job.aresult(WAIT_TIMEOUT))
        assert child.state is State.SUCCEEDED


def test_threads_share_the_sync_api(plain: Windlass) -> None:
    @plain.task
    def noop(n: int) -> None: ...

    ids: list[UUID] = []

    def enqueue_some() -> None:
        ids.extend(noop.enqueue(n).id for n in range(20))

    threads = [threading.Thread(target=enqueue_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_TIMEOUT)
    assert len(set(ids)) == 80


@pytest.mark.parametrize(
    ("kind", "sync", "other"),
    [
        (Job, "refresh", "arefresh"),
        (Job, "wait", "await_end"),
        (Job, "result", "aresult"),
        (Job, "cancel", "acancel"),
        (Job, "submit", "asubmit"),
        (Windlass, "enqueue_many", "aenqueue_many"),
        (Windlass, "close", "aclose"),
    ],
)
def test_sync_and_async_methods_have_the_same_parameters(kind: type, sync: str, other: str) -> None:
    one, two = getattr(kind, sync), getattr(kind, other)
    assert inspect.signature(one) == inspect.signature(two)
    assert inspect.iscoroutinefunction(two)
    assert not inspect.iscoroutinefunction(one)


def test_a_wait_raises_an_error_after_its_timeout(plain: Windlass) -> None:
    @plain.task
    def noop() -> None: ...

    with pytest.raises(TimeoutError):
        noop.enqueue().wait("50ms")


async def test_an_async_wait_raises_an_error_after_its_timeout(app: Windlass) -> None:
    @app.task
    async def noop() -> None: ...

    job = await noop.aenqueue()
    with pytest.raises(TimeoutError):
        await job.aresult(0.05)


# -- options


async def test_options_apply_to_new_jobs_and_do_not_change_the_task(app: Windlass) -> None:
    @app.task(queue="films", priority=1)
    async def cut(title: str) -> None: ...

    at = datetime.now(UTC) + timedelta(hours=1)
    given = cut.options(
        queue="urgent", priority=9, run_at=at, owner="ada", team="t", tags=("a", "b"),
        headers={"x": "y"}, unique_key="k", expires_in="2h",
    )  # fmt: skip
    row = (await given.aenqueue("one")).row
    assert (row.queue, row.priority, row.owner, row.team) == ("urgent", 9, "ada", "t")
    assert (row.tags, row.headers["x"], row.unique_key) == (("a", "b"), "y", "k")
    assert (row.state, row.due_at) == (State.CREATED, int(at.timestamp() * 1e6))
    assert row.expires_at is not None
    plain = (await cut.aenqueue("two")).row
    assert (plain.queue, plain.priority, plain.owner) == ("films", 1, "")


@pytest.mark.parametrize("tags", [["a", "b"], ("a", "b"), UserList(["a", "b"])])
async def test_tags_may_be_any_sequence_of_strings(app: Windlass, tags: Sequence[str]) -> None:
    @app.task()
    async def work() -> None: ...

    job = await work.options(tags=tags).aenqueue()
    assert job.row.tags == ("a", "b")


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("urgent", "tags is 'urgent'; write tags=['urgent']"),
        (b"urgent", """tags is b'urgent'; write a list of strings: tags=["a", "b"]"""),
        ({"a"}, """tags is {'a'}; write a list of strings: tags=["a", "b"]"""),
        (None, """tags is None; write a list of strings: tags=["a", "b"]"""),
        (["a", 1], "tags has 1; each tag must be a string"),
    ],
)
def test_invalid_tags_are_refused_with_an_example(
    app: Windlass, tags: object, message: str
) -> None:
    @app.task()
    async def work() -> None: ...

    with pytest.raises(InvalidArgumentError) as refused:
        work.options(tags=tags)
    assert str(refused.value) == message


async def test_later_options_extend_earlier_ones(app: Windlass) -> None:
    @app.task
    async def noop() -> None: ...

    row = (await noop.options(priority=5).options(delay="1m").aenqueue()).row
    assert (row.priority, row.state) == (5, State.CREATED)


async def test_an_unknown_option_is_named_in_the_error(app: Windlass) -> None:
    @app.task
    async def noop() -> None: ...

    with pytest.raises(ConfigurationError, match=r"unknown options: prio; valid are .*priority"):
        noop.options(prio=5, owner="ada")


async def test_a_held_job_runs_only_when_it_is_submitted(app: Windlass) -> None:
    @app.task
    async def noop() -> int:
        return 1

    job = await noop.options(hold=True).aenqueue()
    await run_burst(app)  # ends, although a held job exists
    assert (await job.arefresh()).state is State.CREATED
    assert await job.asubmit() is State.QUEUED
    await run_burst(app)
    assert await job.aresult(WAIT_TIMEOUT) == 1


async def test_a_repeated_request_returns_the_same_job(app: Windlass) -> None:
    @app.task
    async def pay(amount: int) -> None: ...

    first = await pay.options(request_id="r1").aenqueue(5)
    again = await pay.options(request_id="r1").aenqueue(5)
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)
    other = await pay.options(request_id="r1", owner="ada").aenqueue(5)
    assert other.id != first.id


async def test_a_request_id_with_other_arguments_is_a_conflict(app: Windlass) -> None:
    @app.task
    async def pay(amount: int) -> None: ...

    await pay.options(request_id="r1").aenqueue(5)
    with pytest.raises(ConflictError, match=r"'r1' .*different arguments"):
        await pay.options(request_id="r1").aenqueue(6)


async def test_a_unique_key_returns_the_active_job(app: Windlass) -> None:
    @app.task
    async def index(page: int) -> int:
        return page

    keyed = index.options(unique_key="site")
    first = await keyed.aenqueue(1)
    assert (await keyed.aenqueue(2)).id == first.id
    newest = await keyed.options(debounce=True).aenqueue(3)
    assert newest.id != first.id
    assert (await first.arefresh()).state is State.CANCELED
    await run_burst(app)
    assert await newest.aresult(WAIT_TIMEOUT) == 3


async def test_a_bulk_enqueue_returns_jobs_in_order_and_marks_duplicates(app: Windlass) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    news = [double.new_job(n) for n in range(50)]
    news.insert(25, double.options(request_id="r").new_job(100))
    news.append(double.options(request_id="r").new_job(100))
    jobs = await app.aenqueue_many(news)
    assert [job.duplicate for job in jobs] == [False] * 51 + [True]
    assert jobs[-1].id == jobs[25].id
    await run_burst(app)
    expected = [2 * n for n in range(50)]
    expected.insert(25, 200)
    assert [await job.aresult(WAIT_TIMEOUT) for job in jobs] == [*expected, 200]


async def test_an_invalid_job_in_a_bulk_enqueue_raises_and_the_others_are_stored(
    app: Windlass,
) -> None:
    @app.task
    async def noop() -> None: ...

    good = [noop.new_job(), noop.new_job()]
    bad = noop.options(queue="q" * 500).new_job()
    with pytest.raises(InvalidArgumentError, match="queue"):
        await app.aenqueue_many([good[0], bad, good[1]])
    for new in good:
        assert (await app.client().get(new.id)).state is State.QUEUED
    with pytest.raises(NotFoundError):
        await app.client().get(bad.id)


# -- cancel and results


async def test_a_waiting_job_is_canceled_at_once_with_its_reason(app: Windlass) -> None:
    @app.task
    async def noop() -> None: ...

    job = await noop.aenqueue()
    assert await job.acancel("wrong file") is State.CANCELED
    with pytest.raises(JobFailedError, match=r"was canceled: wrong file") as caught:
        await job.aresult(WAIT_TIMEOUT)
    assert (caught.value.state, caught.value.remote_traceback) == ("canceled", None)


async def test_a_finished_job_refuses_a_cancel(app: Windlass) -> None:
    @app.task
    async def noop() -> None: ...

    job = await noop.aenqueue()
    await run_burst(app)
    with pytest.raises(ConflictError, match="succeeded"):
        await job.acancel()


async def test_a_result_has_the_annotated_type(app: Windlass) -> None:
    film = Film("Metropolis", datetime(1927, 1, 10, tzinfo=UTC))

    @app.task
    async def find(like: Film) -> dict[UUID, Film]:
        return {UUID(int=7): like}

    job = await find.aenqueue(film)
    await run_burst(app)
    assert await job.aresult(WAIT_TIMEOUT) == {UUID(int=7): film}


async def test_a_failed_job_raises_with_the_remote_traceback(app: Windlass) -> None:
    @app.task(max_retries=1, backoff=fixed(0))
    async def explode(n: int) -> None:
        raise ZeroDivisionError(f"at {n}")

    job = await explode.aenqueue(3)
    await run_burst(app)
    with pytest.raises(JobFailedError, match=r"attempt 2: ZeroDivisionError: at 3") as caught:
        await job.aresult(WAIT_TIMEOUT)
    assert explode.name in str(caught.value)
    assert "ZeroDivisionError: at 3" in (caught.value.remote_traceback or "")


async def test_events_are_followed_live_until_the_job_ends(app: Windlass) -> None:
    @app.task
    async def noop(ctx: Context) -> None:
        ctx.log("here")

    job = await noop.aenqueue()
    working = asyncio.create_task(run_burst(app))
    async with asyncio.timeout(WAIT_TIMEOUT):
        events = [event async for event in job.aevents()]
        await working
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert EventType.LOG in {event.type for event in events}
    assert events[-1].final


# -- transactions


def titles(app: Windlass) -> list[str]:
    with app.transaction() as tx:
        return [title for (title,) in tx.execute("SELECT title FROM films ORDER BY title")]


@pytest.fixture
def films(file: Windlass) -> Windlass:
    with file.transaction() as tx:
        tx.execute("CREATE TABLE films (title TEXT PRIMARY KEY)")

    @file.task(name="cut")
    def cut(title: str) -> str:
        return title

    return file


def enqueue_cut(app: Windlass, title: str) -> Job[Any]:
    spec = app.tasks.get("cut")
    assert spec is not None
    return app.enqueue_many([app.prepare(spec, (title,), {}, _NO_OPTIONS)])[0]


def test_rows_and_jobs_are_committed_together(films: Windlass) -> None:
    with films.transaction() as tx:
        tx.execute("INSERT INTO films VALUES (?)", ("M",))
        job = enqueue_cut(films, "M")
        tx.execute("INSERT INTO films VALUES (:title)", {"title": "N"})
    assert titles(films) == ["M", "N"]
    assert job.refresh().state is State.QUEUED


def test_rows_and_jobs_are_rolled_back_together(films: Windlass) -> None:
    jobs: list[Job[Any]] = []

    def enqueue_and_raise() -> None:
        with films.transaction() as tx:
            tx.execute("INSERT INTO films VALUES ('M')")
            jobs.append(enqueue_cut(films, "M"))
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        enqueue_and_raise()
    assert titles(films) == []
    with pytest.raises(NotFoundError):
        jobs[0].refresh()
    assert enqueue_cut(films, "after").refresh().state is State.QUEUED


def test_an_error_in_a_statement_has_the_message_of_the_engine(films: Windlass) -> None:
    with pytest.raises(apsw.SQLError, match="nowhere"), films.transaction() as tx:
        tx.execute("SELECT * FROM nowhere")
    with pytest.raises(apsw.ConstraintError), films.transaction() as tx:
        tx.execute("INSERT INTO films VALUES ('M'), ('N'), ('M')")
    assert titles(films) == []


def test_a_transaction_past_its_timeout_is_rolled_back(films: Windlass) -> None:
    def exceed_timeout() -> None:
        with films.transaction(timeout="50ms") as tx:
            tx.execute("INSERT INTO films VALUES ('M')")
            other = threading.Thread(target=enqueue_cut, args=(films, "other"))
            other.start()  # waits for the writer, and gets it after the timeout
            other.join(WAIT_TIMEOUT)
            tx.execute("INSERT INTO films VALUES ('N')")

    with pytest.raises(ConflictError, match=r"more than 0.05 s and was rolled back"):
        exceed_timeout()
    assert titles(films) == []


async def test_an_async_enqueue_joins_the_transaction(films: Windlass) -> None:
    spec = films.tasks.get("cut")
    assert spec is not None
    new = films.prepare(spec, ("M",), {}, _NO_OPTIONS)

    async def enqueue_and_fail() -> None:
        with films.transaction(timeout=2 * WAIT_TIMEOUT):
            await films.aenqueue_many([new])
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await asyncio.wait_for(enqueue_and_fail(), WAIT_TIMEOUT)
    with pytest.raises(NotFoundError):
        await films.client().get(new.id)
    await films.aclose()


def test_a_transaction_applies_to_one_app_only(films: Windlass, tmp_path: Path) -> None:
    other = Windlass(f"sqlite:///{tmp_path}/other.db?durability=off")

    @other.task
    def noop() -> None: ...

    jobs: list[Job[None]] = []

    def enqueue_and_raise() -> None:
        with films.transaction():
            jobs.append(noop.enqueue())
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        enqueue_and_raise()
    assert jobs[0].refresh().state is State.QUEUED
    other.close()


def test_a_transaction_inside_another_is_refused_at_once(films: Windlass) -> None:
    with films.transaction() as tx:
        with pytest.raises(ConflictError, match="already open"), films.transaction():
            pass
        tx.execute("INSERT INTO films VALUES ('M')")
    assert titles(films) == ["M"]


def test_a_store_without_transactions_is_refused() -> None:
    app = Windlass("memory:")
    with pytest.raises(ConfigurationError, match=r"needs an SQLite store, not memory:"):
        app.transaction().__enter__()
    app.close()


# -- URLs


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("jobs.db", r"'jobs.db' has no scheme; expected memory: or sqlite:///"),
        ("mysql://host/db", r"unknown scheme 'mysql'; expected memory: or sqlite:///"),
        ("sqlite://jobs.db", r"names no file: use sqlite:///file.db"),
        ("sqlite:///", r"names no file"),
        ("sqlite:///jobs.db?mode=fast", r"unknown options: mode"),
        ("memory:?a=1", r"unknown options: a"),
        ("sqlite:///jobs.db?durability=some", r"durability"),
    ],
)
def test_an_invalid_url_is_refused_with_valid_examples(url: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Windlass(url)


def test_a_path_that_cannot_be_opened_is_named_at_the_first_use(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/no/such/folder/jobs.db")

    @app.task
    def noop() -> None: ...

    with pytest.raises(StoreError, match="no/such/folder"):
        noop.enqueue()
    app.close()


# -- encryption


def file_contents(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir())


async def test_a_file_of_an_encrypted_app_has_no_plain_text(tmp_path: Path) -> None:
    app = Windlass(url_in(tmp_path), codec=EncryptingCodec({"k1": os.urandom(32)}))

    @app.task(max_retries=1, backoff=fixed(0))
    async def secretive(ctx: Context, text: str) -> str:
        ctx.log("LOGGED-SECRET")
        ctx.warn("WARNED-SECRET")
        ctx.progress(50, "PROGRESS-SECRET")

        async def piece() -> str:
            return "STEP-SECRET"

        kept = await ctx.astep("piece", piece)
        await ctx.flush()
        if ctx.attempt == 1:
            raise ValueError("ERROR-SECRET " + text)
        return f"RESULT-SECRET {kept}"

    @app.task(max_retries=0)
    def fails(text: str) -> None:
        raise ValueError("FINAL-SECRET " + text)

    job = await secretive.options(request_id="r").aenqueue("PAYLOAD-SECRET")
    again = await secretive.options(request_id="r").aenqueue("PAYLOAD-SECRET")
    assert again.duplicate
    bad = await fails.aenqueue("PAYLOAD-SECRET")
    await run_burst(app)
    assert await job.aresult(WAIT_TIMEOUT) == "RESULT-SECRET STEP-SECRET"
    with pytest.raises(JobFailedError, match="FINAL-SECRET PAYLOAD-SECRET") as caught:
        await bad.aresult(WAIT_TIMEOUT)
    assert "FINAL-SECRET" in (caught.value.remote_traceback or "")
    raw = file_contents(tmp_path)  # also the WAL, while the database is open
    assert b"secretive" in raw
    assert b"SECRET" not in raw
    assert b"ValueError(" not in raw
    await app.aclose()


# -- close, and other processes


def test_closing_ends_every_thread_of_the_app(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    app = Windlass(url_in(tmp_path))

    @app.task
    def noop() -> int:
        return 1

    async def use() -> None:
        job = await noop.aenqueue()
        await run_burst(app)
        await job.aresult(WAIT_TIMEOUT)

    for _ in range(3):
        asyncio.run(use())  # three event loops, each with its own handle
    noop.enqueue().refresh()
    app.close()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()
    with pytest.raises(StoreError, match="closed"):
        noop.enqueue()
    with pytest.raises(StoreError, match="closed"):
        app.worker()
    app.close()  # a repeat is harmless


@pytest.mark.filterwarnings("ignore:this call blocks the running event loop")
async def test_aclose_also_ends_the_thread_of_the_sync_api(url: str) -> None:
    before = {thread for thread in threading.enumerate() if "windlass" in thread.name}
    app = Windlass(url)

    @app.task
    async def noop() -> None: ...

    await noop.aenqueue()
    noop.enqueue().refresh()
    await app.aclose()
    left = {thread for thread in threading.enumerate() if "windlass" in thread.name} - before
    assert left == set()


async def test_the_sync_close_is_refused_in_a_loop_that_uses_the_app(app: Windlass) -> None:
    @app.task
    async def noop() -> None: ...

    await noop.aenqueue()
    with pytest.raises(ConfigurationError, match=r"await app.aclose\(\)"):
        app.close()


def test_a_stopped_loop_does_not_delay_the_close(tmp_path: Path) -> None:
    app = Windlass(url_in(tmp_path))

    @app.task
    def noop() -> None: ...

    async def wait_a_little() -> None:
        with pytest.raises(TimeoutError):
            await (await noop.aenqueue()).await_end(0.05)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait_a_little())
    app.close()
    loop.close()


def _enqueue_in_a_child(app: Windlass, job_ids: Any) -> None:
    spec = app.tasks.get("cut")
    assert spec is not None
    job = app.enqueue_many([app.prepare(spec, ("child",), {}, _NO_OPTIONS)])[0]
    job_ids.put(str(job.refresh().id))
    app.close()


def test_a_used_app_works_in_a_forked_process(films: Windlass) -> None:
    enqueue_cut(films, "parent")
    fork = multiprocessing.get_context("fork")
    job_ids: Any = fork.SimpleQueue()
    child = fork.Process(target=_enqueue_in_a_child, args=(films, job_ids))
    child.start()
    child.join(WAIT_TIMEOUT)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert child.exitcode == 0
    found = films.sync.call(_get(films, UUID(job_ids.get())))
    assert found is State.QUEUED


async def _get(app: Windlass, job_id: UUID) -> State:
    return (await app.client().get(job_id)).state


async def test_an_enqueue_with_an_id_may_be_repeated(app: Windlass) -> None:
    @app.task
    async def noop(n: int) -> None: ...

    own = uuid7()
    first = await noop.options(id=own).aenqueue(1)
    again = await noop.options(id=own).aenqueue(1)
    assert first.id == again.id == own


async def test_an_event_loop_refuses_sync_calls_until_its_last_worker_ends(app: Windlass) -> None:
    loop = asyncio.get_running_loop()
    with app.sync.refusing(loop):
        with app.sync.refusing(loop):
            pass
        with pytest.raises(ConfigurationError, match="await the async method"):
            app.sync.call(asyncio.sleep(0))


def test_a_handle_opened_while_the_store_is_replaced_belongs_to_the_right_store(
    tmp_path: Path,
) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/real.db", data=tmp_path)
    waiting, go = threading.Event(), threading.Event()

    class PausingLock:
        """Pauses the first caller on the thread of the test before it takes the lock."""

        def __init__(self, lock: Any) -> None:
            self._lock, self._pauses = lock, True

        def __enter__(self) -> None:
            if threading.current_thread().name == "opens" and self._pauses:
                self._pauses = False
                waiting.set()
                go.wait(10)
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    app._lock = PausingLock(app._lock)  # type: ignore[assignment]
    loop = asyncio.new_event_loop()

    async def handle() -> Store:
        return app.client().store

    thread = threading.Thread(
        target=lambda: loop.run_until_complete(handle()), name="opens", daemon=True
    )
    thread.start()
    assert waiting.wait(10)
    with app.replace_store(MemoryStore(), tmp_path):
        go.set()
        thread.join(10)
    assert isinstance(loop.run_until_complete(handle()), SqliteStore)
    loop.run_until_complete(app.aclose())
    loop.close()
