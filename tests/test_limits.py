"""Limits and limit keys: declared with a task, and `app.limits` at run time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.worker.workers import run_burst, running_worker

from windlass import (
    Batch,
    ConfigurationError,
    Context,
    InvalidArgumentError,
    Limit,
    Limits,
    NotFoundError,
    StoreUnavailableError,
    Tasks,
    Windlass,
    chain,
)
from windlass.core.admission.limit import LIMIT
from windlass.core.diagnosis import ReasonCode
from windlass.core.job.new_job import NewJob
from windlass.core.job.state import State
from windlass.records.limit_records import LimitRecords
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock, twin
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
TWO, FIVE = Limit(concurrency=2), Limit(concurrency=5)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def app(clock: VirtualClock) -> AsyncIterator[Windlass]:
    app = Windlass("memory:", clock=clock)
    yield app
    await app.aclose()


@pytest.fixture
def plain() -> Iterator[Windlass]:
    """For tests without an event loop."""
    app = Windlass("memory:")
    yield app
    app.close()


class RecordingStore(WrappedStore):
    """Records the calls of a store."""

    def __init__(self, store: Store, calls: list[str], failing: list[Exception]) -> None:
        super().__init__(store)
        self.calls = calls
        self.failing = failing

    def wrap(self, store: Store) -> RecordingStore:
        return RecordingStore(store, self.calls, self.failing)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(verb)
        await asyncio.sleep(0)  # other tasks may run in between
        if verb == "put_records" and self.failing:
            raise self.failing.pop()
        return await call()


@dataclass
class SharedStore:
    """One store that several apps use, as in several processes."""

    data: Path
    stack: ExitStack
    memory: MemoryStore
    calls: list[str]
    failing: list[Exception]

    def open(self, limits: dict[str, Limit] | None = None) -> Windlass:
        app = Windlass("memory:", limits=limits)
        self.stack.callback(app.close)
        store = RecordingStore(self.memory.twin(), self.calls, self.failing)
        self.stack.enter_context(app.replace_store(store, self.data))
        return app


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedStore]:
    with ExitStack() as stack:
        yield SharedStore(tmp_path, stack, MemoryStore(), [], [])


def keys(*jobs: NewJob) -> list[str | None]:
    return [job.limit_key for job in jobs]


# -- declared with a task


async def test_no_more_jobs_of_a_task_run_than_its_limit(app: Windlass) -> None:
    at_once: list[int] = []
    running = 0

    @app.task(limit=TWO)
    async def render(number: int) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0)
        running -= 1

    await app.aenqueue_many([render.new_job(n) for n in range(7)])
    await run_burst(app)
    assert len(at_once) == 7
    assert max(at_once) == 2


async def test_a_limit_is_stored_before_the_first_job_of_its_task(app: Windlass) -> None:
    @app.task(name="render", limit=Limit(concurrency=1))
    async def render() -> None: ...

    jobs = [await render.aenqueue() for _ in range(3)]
    assert [job.state for job in jobs] == [State.QUEUED, State.CREATED, State.CREATED]
    assert [job.row.gate for job in jobs] == [None, "task:render", "task:render"]


async def test_each_key_has_its_own_limit(app: Windlass) -> None:
    @app.task(name="mail", limit_key="tenant", key_limit=Limit(concurrency=1))
    async def mail(tenant: str, text: str) -> None: ...

    jobs = [await mail.aenqueue(tenant, "hi") for tenant in ("ada", "ada", "bob")]
    assert [job.state for job in jobs] == [State.QUEUED, State.CREATED, State.QUEUED]


async def test_a_rate_limits_starts_in_any_period(app: Windlass) -> None:
    @app.task(limit=Limit(rate="2/1m"))
    async def call() -> None: ...

    with twin(app) as jobs:
        await app.aenqueue_many([call.new_job() for _ in range(5)])
        assert await jobs.adrain() == {State.SUCCEEDED: 2, State.CREATED: 3}
        started = jobs.clock.now()
        assert await jobs.adrain(until_empty=True) == {State.SUCCEEDED: 3}
        assert jobs.clock.now() - started == 120 * 10**6


async def test_a_queue_is_limited_by_the_app(clock: VirtualClock) -> None:
    app = Windlass("memory:", clock=clock, limits={"queue:render": Limit(concurrency=1)})

    @app.task(queue="render")
    async def film() -> None: ...

    @app.task
    async def mail() -> None: ...

    films = [await film.aenqueue() for _ in range(2)]
    mails = [await mail.aenqueue() for _ in range(2)]
    assert [job.state for job in films] == [State.QUEUED, State.CREATED]
    assert [job.state for job in mails] == [State.QUEUED, State.QUEUED]
    await app.aclose()


async def test_an_app_gets_the_limits_of_a_group_also_later_ones(app: Windlass) -> None:
    tasks = Tasks()
    app.include(tasks)

    @app.task
    async def other() -> None: ...

    await other.aenqueue()

    @tasks.task(name="late", limit=TWO)
    async def late() -> None: ...

    await late.aenqueue()
    [found] = await app.limits.alist()
    assert (found.name, found.limit, found.declared, found.override) == (
        "task:late",
        TWO,
        TWO,
        None,
    )


async def test_limits_apply_to_flows_and_children(app: Windlass) -> None:
    @app.task(name="piece", limit=Limit(concurrency=1), limit_key="number")
    async def piece(number: int) -> int:
        return number

    @app.task
    async def parent(ctx: Context) -> int:
        return sum(await ctx.amap(piece, [1, 2, 3]))

    flow = app.flow()
    for number in range(3):
        flow.add(piece, number)
    run = await flow.aenqueue()
    found = [row async for row in app.client().flow_jobs(run.id)]
    assert sorted(row.limit_key or "" for row in found) == ["0", "1", "2"]
    assert sum(row.gate == "task:piece" for row in found) == 2
    job = await parent.aenqueue()
    await run_burst(app)
    assert await job.aresult(5) == 6


def test_an_invalid_limit_is_refused_where_it_is_declared(plain: Windlass) -> None:
    for wrong in ({"limit": 5}, {"key_limit": "5/s", "limit_key": "a"}):
        with pytest.raises(ConfigurationError, match=r"write (key_)?limit=Limit\("):
            plain.task(**wrong)
    with pytest.raises(ConfigurationError, match="key_limit needs a limit_key"):
        plain.task(key_limit=TWO)
    with pytest.raises(ConfigurationError, match="limit_key is 5; it must be the name"):
        plain.task(limit_key=5)
    with pytest.raises(InvalidArgumentError, match="queue:NAME"):
        Windlass("memory:", limits={"render": TWO})
    with pytest.raises(ConfigurationError, match=r"limits has 5 for queue:x"):
        Windlass("memory:", limits={"queue:x": 5})  # type: ignore[dict-item]


def test_two_limits_with_one_name_are_refused() -> None:
    app = Windlass("memory:", limits={"task:render": TWO})
    with pytest.raises(ConfigurationError, match="two limits are declared for task:render"):

        @app.task(name="render", limit=FIVE)
        def render() -> None: ...

    assert app.tasks.get("render") is None
    app.close()


# -- keys


@dataclass
class Tenant:
    id: int
    name: str = ""


class Plan(Enum):
    FREE = "free"


def test_the_limit_key_is_an_argument_or_a_function_of_arguments(plain: Windlass) -> None:
    @plain.task(limit_key="tenant")
    def one(text: str, tenant: str | None = "none") -> None: ...

    @plain.task(limit_key=lambda tenant, region: f"{tenant.id}-{region}")
    def two(ctx: Context, tenant: Tenant, text: str, *, region: str = "eu") -> None: ...

    assert keys(one.new_job("hi", "ada"), one.new_job("hi", tenant="bob")) == ["ada", "bob"]
    assert keys(one.new_job("hi"), one.new_job("hi", None)) == ["none", None]
    assert keys(two.new_job(Tenant(7), "hi")) == ["7-eu"]
    stored: Any = {"id": "8"}  # the function gets validated arguments
    assert keys(two.new_job(stored, "hi", region="us")) == ["8-us"]
    assert keys(one.options(limit_key="override").new_job("hi", "ada")) == ["override"]


@pytest.mark.parametrize(
    ("value", "key"),
    [("ada", "ada"), ("", ""), (7, "7"), (None, None), (Plan.FREE, "free"),
     (UUID(int=5), "00000000-0000-0000-0000-000000000005")],
)  # fmt: skip
def test_the_limit_key_is_converted_to_text(plain: Windlass, value: Any, key: str | None) -> None:
    @plain.task(limit_key=lambda: value)
    def task() -> None: ...

    assert task.new_job().limit_key == key
    assert task.options(limit_key=value).new_job().limit_key == key


@pytest.mark.parametrize("value", [1.5, b"ada", ["ada"], object()])
def test_an_invalid_key_is_refused_at_the_enqueue(plain: Windlass, value: Any) -> None:
    @plain.task(name="mail", limit_key=lambda: value)
    def mail() -> None: ...

    with pytest.raises(
        InvalidArgumentError, match=r"limit_key of task 'mail' is .* must be a string"
    ):
        mail.new_job()
    with pytest.raises(InvalidArgumentError, match="it must be a string"):
        mail.options(limit_key=value)


def test_a_key_function_that_raises_is_refused_at_the_enqueue(plain: Windlass) -> None:
    @plain.task(name="mail", limit_key=lambda tenant: tenant["id"])
    def mail(tenant: dict[str, int]) -> None: ...

    assert mail.new_job({"id": 3}).limit_key == "3"
    with pytest.raises(InvalidArgumentError, match="limit_key of task 'mail' raised KeyError"):
        mail.new_job({})


def test_a_key_that_is_too_long_is_refused(plain: Windlass) -> None:
    @plain.task(limit_key="tenant")
    def mail(tenant: str) -> None: ...

    with pytest.raises(InvalidArgumentError, match="limit_key has 600 characters"):
        mail.enqueue("x" * 600)


def test_a_limit_key_of_unknown_arguments_is_refused(plain: Windlass) -> None:
    def mail(ctx: Context, tenant: str) -> None: ...

    async def later(tenant: str) -> str:
        return tenant

    for wrong, why in (
        ("tenent", r"uses the argument 'tenent', but the task takes 'tenant'"),
        (lambda tenant, region: region, "uses the argument 'region'"),
        (lambda ctx: ctx, "uses the argument 'ctx'"),
        (lambda *all_of_them: "", r"has the parameter '\*all_of_them'"),
        (later, "is an async function"),
        (type, "whose parameters cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            plain.task(name="mail", limit_key=wrong)(mail)
    assert plain.tasks.get("mail") is None


def test_the_limit_key_of_a_batch_task_uses_the_arguments_of_a_job(plain: Windlass) -> None:
    @plain.task(batch=10, args=Tenant, limit_key=lambda id, name: f"{id}{name}")  # noqa: A006
    def mails(batch: Batch[Tenant]) -> None: ...

    assert keys(mails.new_job(5, "ada"), mails.new_job(6)) == ["5ada", "6"]


def test_a_key_from_a_future_result_is_refused(plain: Windlass) -> None:
    @plain.task
    def find() -> str:
        return "ada"

    @plain.task(limit_key="tenant")
    def mail(tenant: str) -> None: ...

    with pytest.raises(InvalidArgumentError, match=r"uses the argument 'tenant'.*limit_key=…"):
        chain(find, mail).enqueue()
    run = chain(find, mail.options(limit_key="ada")).enqueue()
    assert sum(run.refresh().counts.values()) == 2


async def test_retries_and_ticks_keep_the_limit_key(app: Windlass) -> None:
    @app.schedule(every="1m", args=["ada"])
    @app.task(max_retries=0, limit_key="tenant")
    async def mail(tenant: str) -> None:
        raise ValueError

    with twin(app) as jobs:
        await jobs.atick()
        jobs.clock.advance("1m")
        [job] = await jobs.atick()
        assert job.row.limit_key == "ada"
        await jobs.adrain()
        assert (await job.aretry()).row.limit_key == "ada"


async def test_a_key_without_limits_gives_fairness(app: Windlass) -> None:
    order: list[str] = []

    @app.task(limit_key="tenant")
    async def mail(tenant: str) -> None:
        order.append(tenant)

    for tenant in ("ada", "ada", "ada", "bob"):
        await mail.aenqueue(tenant)
    await run_burst(app, queues={"default": 1})
    assert order == ["ada", "bob", "ada", "ada"]
    assert await app.limits.alist() == []


# -- storage of declared limits


def test_an_app_without_limits_makes_no_extra_store_calls(shared: SharedStore) -> None:
    app = shared.open()

    @app.task(limit_key="number")
    def task(number: int) -> None: ...

    task.enqueue(1)
    task.enqueue(2)
    assert shared.calls == ["enqueue", "enqueue"]


def test_limits_are_stored_once_per_process(shared: SharedStore) -> None:
    for processes in range(2):
        app = shared.open({"queue:slow": FIVE})

        @app.task(name="render", limit=TWO)
        def render() -> None: ...

        shared.calls.clear()
        render.enqueue()
        assert shared.calls.count("put_records") == (0 if processes else 2)
        assert shared.calls[0] == "get_records"
        shared.calls.clear()
        render.enqueue()
        assert shared.calls == ["enqueue"]


def test_two_versions_of_the_code_do_not_overwrite_each_other_repeatedly(
    shared: SharedStore,
) -> None:
    """The process that started last wins; an enqueue writes no limits."""

    def version(limit: Limit) -> tuple[Windlass, Any]:
        app = shared.open()
        return app, app.task(name="render", limit=limit)(lambda: None)

    (old, old_render), (new, new_render) = version(TWO), version(FIVE)
    old_render.enqueue()
    assert old.limits.list()[0].limit == TWO
    new_render.enqueue()
    old_render.enqueue()
    assert old.limits.list() == new.limits.list()
    assert new.limits.list()[0].declared == FIVE


def test_a_limit_set_at_run_time_outlives_a_deploy(shared: SharedStore) -> None:
    first = shared.open({"queue:slow": TWO})
    first.limits.set("queue:slow", Limit(concurrency=1))
    second = shared.open({"queue:slow": FIVE})

    @second.task
    def task() -> None: ...

    task.enqueue()
    [found] = second.limits.list()
    assert (found.limit, found.declared, found.override) == (
        Limit(concurrency=1), FIVE, Limit(concurrency=1),
    )  # fmt: skip
    back = second.limits.reset("queue:slow")
    assert back is not None
    assert (back.limit, back.override) == (FIVE, None)


def test_no_job_is_stored_while_its_limits_cannot_be_stored(shared: SharedStore) -> None:
    app = shared.open({"queue:default": TWO})

    @app.task
    def task() -> None: ...

    shared.failing.append(StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError):
        task.enqueue()
    assert "enqueue" not in shared.calls
    task.enqueue()
    assert [one.name for one in app.limits.list()] == ["queue:default"]


async def test_a_worker_stores_limits_before_its_first_claim(shared: SharedStore) -> None:
    app = shared.open({"queue:default": TWO})
    shared.failing.append(StoreUnavailableError("away"))
    await run_burst(app)
    assert [one.declared for one in await app.limits.alist()] == [TWO]
    assert shared.calls.index("put_records") < shared.calls.index("claim")


async def test_a_worker_that_cannot_store_its_limits_can_still_be_stopped(
    shared: SharedStore,
) -> None:
    app = shared.open({"queue:default": TWO})
    shared.failing += [StoreUnavailableError("away")] * 100
    async with running_worker(app):
        await asyncio.sleep(0)
    assert "claim" not in shared.calls


def test_limits_are_stored_before_a_transaction_begins(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db?durability=off"
    app = Windlass(url, limits={"queue:default": Limit(concurrency=1)})

    @app.task
    def task() -> None: ...

    with app.transaction() as tx:
        tx.execute("CREATE TABLE mine (number)")
        jobs = [task.enqueue(), task.enqueue()]
    assert [job.refresh().row.gate for job in jobs] == [None, "queue:default"]
    app.close()


async def test_limits_are_stored_before_a_transaction_on_an_event_loop(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db?durability=off"
    app = Windlass(url, limits={"queue:default": Limit(concurrency=1)})

    @app.task
    async def task() -> None: ...

    with app.transaction():
        await task.aenqueue()
        job = await task.aenqueue()
    assert (await job.arefresh()).row.gate == "queue:default"
    await app.aclose()


async def test_a_twin_stores_the_limits_of_its_app_separately(
    app: Windlass,
) -> None:
    @app.task(name="render", limit=TWO)
    async def render() -> None: ...

    for _ in range(2):
        with twin(app):
            await render.aenqueue()
            assert [one.name for one in await app.limits.alist()] == ["task:render"]
    assert await app.limits.alist() == []
    await render.aenqueue()
    assert [one.name for one in await app.limits.alist()] == ["task:render"]


# -- at run time


async def test_limits_are_listed_with_counts_of_used_slots_and_waiting_jobs(app: Windlass) -> None:
    @app.task(name="mail", limit=TWO, limit_key="tenant", key_limit=FIVE)
    async def mail(tenant: str) -> None: ...

    await app.limits.aset("queue:default", Limit(rate="9/1m"))
    for _ in range(3):
        await mail.aenqueue("ada")
    found = {one.name: one for one in await app.limits.alist()}
    assert list(found) == ["key:mail", "queue:default", "task:mail"]
    task, queue, key = found["task:mail"], found["queue:default"], found["key:mail"]
    assert (task.in_use, task.waiting) == (2, 1)
    assert (queue.in_use, queue.waiting, queue.override) == (2, 0, Limit(starts=9, period=60))
    assert (key.in_use, key.waiting, key.declared) == (None, None, FIVE)


async def test_a_set_limit_applies_at_once_and_a_reset_admits_all(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    made = await app.limits.aset("queue:default", Limit(concurrency=1))
    assert (made.limit, made.in_use, made.waiting) == (Limit(concurrency=1), 0, 0)
    jobs = [await task.aenqueue() for _ in range(3)]
    assert [job.state for job in jobs] == [State.QUEUED, State.CREATED, State.CREATED]
    assert await app.limits.areset("queue:default") is None
    assert await app.limits.alist() == []
    await run_burst(app)
    assert [(await job.arefresh()).state for job in jobs] == [State.SUCCEEDED] * 3


async def test_a_limit_that_code_no_longer_declares_stays_until_removed(app: Windlass) -> None:
    store = app.client().store
    other = Windlass("memory:", limits={"queue:old": TWO})
    await other.parts.declare_limits(store)  # type: ignore[misc]
    await other.aclose()
    assert [one.name for one in await app.limits.alist()] == ["queue:old"]
    kept = await app.limits.areset("queue:old")  # no override was set
    assert kept is not None
    assert (await app.limits.aremove("queue:old")).declared == TWO
    assert await store.list_records(LIMIT) == []


async def test_invalid_limits_are_refused(app: Windlass) -> None:
    wrong: Any = 5
    with pytest.raises(InvalidArgumentError, match=r"write Limit\("):
        await app.limits.aset("queue:default", wrong)
    for name in ("render", "queue:", wrong):
        with pytest.raises(InvalidArgumentError, match=r"queue:NAME|must be a string"):
            await app.limits.aset(name, TWO)
    for verb in (app.limits.areset, app.limits.aremove):
        with pytest.raises(NotFoundError, match="queue:unheard has no limit"):
            await verb("queue:unheard")
        with pytest.raises(InvalidArgumentError, match="queue:NAME"):
            await verb("unheard")


@pytest.mark.parametrize("turns", range(4))
async def test_concurrent_changes_of_override_and_declaration_are_both_kept(turns: int) -> None:
    keeper = LimitRecords(RecordingStore(MemoryStore(), [], []))

    async def later() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await keeper.set("queue:default", TWO)

    await asyncio.gather(keeper.declare({"queue:default": FIVE}), later())
    [found] = await keeper.list()
    assert (found.override, found.declared) == (TWO, FIVE)


def test_the_sync_api_of_limits_has_the_same_methods(plain: Windlass) -> None:
    for name in ("list", "set", "reset", "remove"):
        waited, awaited = getattr(Limits, name), getattr(Limits, f"a{name}")
        assert inspect.signature(waited) == inspect.signature(awaited)
    plain.limits.set("queue:default", TWO)
    assert [one.limit for one in plain.limits.list()] == [TWO]
    assert plain.limits.reset("queue:default") is None
    plain.limits.set("queue:default", TWO)
    assert plain.limits.remove("queue:default").limit == TWO


# -- diagnosis


async def test_the_diagnosis_of_a_limited_job_names_the_running_one(app: Windlass) -> None:
    @app.task(name="render", limit=Limit(concurrency=1, rate="5/1m"))
    async def render() -> None: ...

    first, second = [await render.aenqueue() for _ in range(2)]
    diagnosis = await second.awhy()
    assert [reason.code for reason in diagnosis.reasons] == [ReasonCode.LIMITED]
    assert str(diagnosis) == (
        f"The concurrency limit of 1 for task render is reached by job {first.id}"
    )
    assert [reason.code for reason in (await first.awhy()).reasons] == [ReasonCode.NO_WORKER]


async def test_the_diagnosis_of_a_rate_limited_job_names_the_time(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(name="render", limit=Limit(rate="1/1m"))
    async def render() -> None: ...

    await render.aenqueue()
    second = await render.aenqueue()
    [reason] = (await second.awhy()).reasons
    assert reason.at == clock.now() + 60 * 10**6
    assert "The rate limit of task render, 1 starts in 60 s, is reached until" in reason.text


async def test_the_diagnosis_of_a_job_with_a_key_counts_the_jobs_ahead(app: Windlass) -> None:
    @app.task(limit_key="tenant")
    async def mail(tenant: str) -> None: ...

    *_, last = [await mail.aenqueue("ada") for _ in range(4)]
    other = await mail.aenqueue("bob")
    assert "1 job is ahead" in str(await other.awhy())
    assert "4 jobs are ahead" in str(await last.awhy())
