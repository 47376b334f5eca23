"""The store protocol: the permissions of each role, and which jobs are visible."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from tests.server.conftest import PATIENCE, Served, serving, until

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Succeeded, settle
from windlass.core.decisions.transition import (
    CancelRequest,
    SignalRequest,
    Status,
    Transition,
    submit,
)
from windlass.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    StoreDeniedError,
    StoreUnavailableError,
)
from windlass.core.ids import uuid7
from windlass.core.job.failure import UNKNOWN_TASK
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.query.job_query import Query
from windlass.core.schedule import MARK, SCHEDULE
from windlass.core.versioned_record import PAUSED, Put
from windlass.core.worker_presence import WORKER
from windlass.server.auth.api_keys import API_KEY, ApiKeys, Role
from windlass.server.auth.audit import AUDIT, AuditLog
from windlass.server.auth.tickets import TICKET
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.routes.store import STORE_METHODS
from windlass.store import Retention, Store
from windlass.stores import wire_format
from windlass.stores.http import HttpConfig, HttpStore
from windlass.testing import make_job
from windlass.testing.factories import claim_all, claim_one, get_one, no_jitter

ROLES = list(Role)
FOR_WORK = {Role.WORKER, Role.ADMIN}
FOR_JOBS = {Role.PRODUCER, Role.WORKER, Role.OPERATOR, Role.ADMIN}
ALL = set(Role)
# Who may use a verb at all, with a call that each could mean; written out by hand.
MAY = {
    "ping": ALL,
    "enqueue": FOR_JOBS,
    "claim": FOR_WORK,
    "extend": FOR_WORK,
    "apply": FOR_JOBS,
    "record": FOR_WORK,
    "wait": FOR_WORK,
    "due": FOR_WORK,
    "expired": FOR_WORK,
    "prune": FOR_WORK,
    "cancel": FOR_JOBS,
    "signal": FOR_JOBS,
    "delete": {Role.OPERATOR, Role.ADMIN},
    "pause": {Role.OPERATOR, Role.ADMIN},
    "get": ALL,
    "find": ALL,
    "count": ALL,
    "stats": ALL,
    "failures": ALL,
    "gates": ALL,
    "rollups": ALL,
    "events": ALL,
    "attempts": ALL,
    "checkpoints": ALL,
    "edges": ALL,
    "flows": ALL,
    "newest_flows": ALL,
    "put_records": {Role.ADMIN},
    "get_records": {Role.ADMIN},
    "list_records": {Role.ADMIN},
    "delete_records": {Role.ADMIN},
}
SERVER_VERBS = {
    "hello": ALL,
    "tail": ALL,
    "why": ALL,
    "rotate": {Role.ADMIN},
}  # not part of the store contract
# What a key of one owner may still do, if its role lets it.
FOR_A_PART = {
    "ping", "enqueue", "apply", "cancel", "signal", "delete", "get", "find", "count", "failures",
    "events", "attempts", "checkpoints", "edges", "flows", "newest_flows",
}  # fmt: skip


def asked(verb: str) -> dict[str, Any]:
    """A call of the verb that harms nobody."""
    job = uuid4()
    calls: dict[str, dict[str, Any]] = {
        "enqueue": {"jobs": [make_job()], "atomic": False},
        "claim": {"claim": Claim(token=uuid7(), worker="w", queues=[("none", 1)])},
        "extend": {"leases": [], "seconds": 1.0},
        "apply": {"transitions": [submit(job)]},
        "record": {"attempt_records": []},
        "wait": {"queues": ["none"], "timeout": 0.0},
        "due": {"limit": 1},
        "expired": {"limit": 1},
        "prune": {"retention": Retention(), "limit": 1},
        "cancel": {"requests": [CancelRequest(job_id=job)]},
        "signal": {"signals": [SignalRequest(job_id=job, name="go")]},
        "delete": {"ids": [job], "owner": None},
        "pause": {"queues": ["none"], "paused": False},
        "get": {"ids": [job], "owner": None},
        "find": {"query": Query()},
        "count": {"query": Query()},
        "failures": {"since": 0, "limit": 1, "owner": None, "team": None},
        "gates": {"names": ["queue:none"]},
        "rollups": {"since": 0, "until": 1},
        "events": {"job_id": job, "after": 0, "limit": 1},
        "attempts": {"job_id": job},
        "checkpoints": {"ids": [job]},
        "edges": {"ids": [job], "limit": None},
        "flows": {"ids": [job]},
        "newest_flows": {"limit": 1, "before": None, "owner": None, "team": None},
        "put_records": {"puts": [Put(kind=API_KEY, key="none", value=b"{}", expected=9)]},
        "get_records": {"kind": API_KEY, "keys": ["none"]},
        "list_records": {"kind": AUDIT, "after": "", "limit": 1},
        "delete_records": {"kind": "anything", "keys": ["none"]},
    }
    return calls.get(verb, {})


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("locked"), ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)
    ) as one:
        yield one


def speak(web: httpx.Client, verb: str) -> httpx.Response:
    body = wire_format.request_schema(verb).dump(**asked(verb))
    headers = {
        wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL,
        "Content-Type": "application/json",
    }
    return web.post(f"{wire_format.PATH}/{verb}", content=body, headers=headers)


def remote(
    served: Served, *roles: Role, owner: str | None = None, team: str | None = None
) -> HttpStore:
    return HttpStore(
        HttpConfig(url=served.url, key=make_key(served, *roles, owner=owner, team=team))
    )


def make_key(
    served: Served, *roles: Role, owner: str | None = None, team: str | None = None
) -> str:
    """By the server's own event loop, so that a test on another one may ask for it."""

    async def make() -> str:
        keys = ApiKeys(served.app.client().store)
        return (await keys.create("test", roles, owner=owner, team=team))[1]

    return asyncio.run_coroutine_threadsafe(make(), served.loop).result(PATIENCE)


# -- roles


def test_every_verb_of_the_contract_has_a_guard_and_no_other_has() -> None:
    assert STORE_METHODS.keys() == set(wire_format.METHODS) == MAY.keys()
    assert set(wire_format.METHODS) | wire_format.LOCAL_METHODS == Store.__abstractmethods__


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_use_the_verbs_that_it_is_for(locked: Served, role: Role) -> None:
    with locked.client(locked.key(role)) as web:
        for verb, roles in MAY.items():
            answer = speak(web, verb)
            assert answer.status_code == (200 if role in roles else 403), (verb, answer.text)


@pytest.mark.parametrize("role", ROLES)
def test_a_key_of_one_owner_or_team_works_for_nobody(locked: Served, role: Role) -> None:
    for whose in ({"owner": "alice"}, {"team": "red"}):
        with locked.client(locked.key(role, **whose)) as web:
            for verb, roles in MAY.items():
                answer = speak(web, verb)
                allowed = role in roles and verb in FOR_A_PART
                if role is Role.WORKER and verb in {"enqueue", "apply", "cancel", "signal"}:
                    allowed = False  # it may as one who works, and it does not
                assert answer.status_code == (200 if allowed else 403), (verb, answer.text)


@pytest.mark.parametrize("role", ROLES)
async def test_the_server_answers_itself_who_may_ask(locked: Served, role: Role) -> None:
    async with remote(locked, Role.PRODUCER) as store:
        mine, others = make_job(queue="asked", owner="eve"), make_job(queue="asked")
        await store.enqueue([mine, others])
    async with remote(locked, role) as all_, remote(locked, role, owner="eve") as part:
        for one in (all_, part):
            assert (await one.why(mine.id)).job_id == mine.id
            assert await _is_let(one.rotate()) is (one is all_ and role in SERVER_VERBS["rotate"])
        assert (await all_.why(others.id)).state is State.QUEUED
        with pytest.raises(NotFoundError, match=f"no job {others.id}"):
            await part.why(others.id)


def test_nothing_is_answered_without_a_key(locked: Served) -> None:
    with locked.client() as web:
        for verb in MAY:
            assert speak(web, verb).status_code == 401
        for verb in SERVER_VERBS:
            assert web.post(f"{wire_format.PATH}/{verb}").status_code == 401


@pytest.mark.parametrize("role", sorted(FOR_JOBS - FOR_WORK))
async def test_who_may_not_work_settles_rescues_and_records_nothing(
    locked: Served, role: Role
) -> None:
    async with remote(locked, Role.ADMIN) as store, remote(locked, role) as theirs:
        [job] = [make_job(queue=f"of {role}")]
        await store.enqueue([job])
        row = await claim_one(store, job.queue)
        transitions = [
            settle(row, Succeeded(), random=no_jitter),
            Transition(job_id=row.id, fence=row.fence, trigger=Trigger.CRASH, token=row.token),
            Transition(job_id=row.id, fence=row.fence, trigger=Trigger.PROMOTE),
            Transition(job_id=row.id, fence=0, trigger=Trigger.SUBMIT, result=b"1"),
            Transition(job_id=row.id, fence=0, trigger=Trigger.SUBMIT, children=(make_job(),)),
            Transition(job_id=row.id, fence=0, trigger=Trigger.CANCEL, token=row.token),
        ]
        for transition in transitions:
            with pytest.raises(StoreDeniedError, match="permission 'work'"):
                await theirs.apply([submit(row.id), transition])
        assert (await get_one(store, row.id)) == row
        await store.apply([transitions[0]])


async def test_the_token_of_a_lease_is_for_those_who_may_work(locked: Served) -> None:
    async with remote(locked, Role.WORKER) as worker, remote(locked, Role.PRODUCER) as producer:
        job = make_job(queue="tokens", unique_key="tokens")
        await producer.enqueue([job])
        row = await claim_one(worker, "tokens")
        assert row.token is not None
        assert (await get_one(worker, job.id)).token == row.token

        [again] = await producer.enqueue([make_job(queue="tokens", unique_key="tokens")])
        seen = [
            await get_one(producer, job.id),
            (await producer.find(Query(queues=frozenset({"tokens"})))).rows[0],
            again.existing,
        ]
        for one in seen:
            assert isinstance(one, JobRow)
            assert (one.id, one.state, one.token) == (job.id, State.RUNNING, None)
        told = [event async for event in _some(producer, job.id)]
        attempts = await producer.attempts(job.id)
        assert str(row.token) not in f"{told} {attempts}"


async def _some(store: HttpStore, job_id: UUID) -> Any:
    page = await store.events(job_id)
    assert page is not None
    for event in page.events:
        yield event


# -- whose jobs


async def test_anothers_job_does_not_exist(locked: Served) -> None:
    alice = remote(locked, Role.OPERATOR, Role.PRODUCER, owner="alice")
    bob = remote(locked, Role.OPERATOR, Role.PRODUCER, owner="bob")
    async with alice, bob, remote(locked, Role.WORKER) as worker:
        parent, child = make_job(queue="a", flow_id=uuid7()), make_job(queue="a", hold=True)
        [first] = await alice.enqueue([parent])
        assert first.row is not None
        assert first.row.owner == "alice"
        row = await claim_one(worker, "a")
        assert row.owner == "alice"
        await alice.enqueue([child])
        for job_id in (parent.id, child.id):
            assert await bob.get([job_id]) == [None]
            assert await bob.events(job_id) is None
            assert await bob.attempts(job_id) is None
            assert await bob.checkpoints([job_id]) == [{}]
            [edges] = await bob.edges([job_id])
            assert (edges.parents, edges.children) == ((), ())
            assert [event async for event in bob.tail(job_id)] == []
            for answers in (
                await bob.cancel([CancelRequest(job_id=job_id)]),
                await bob.cancel([CancelRequest(job_id=job_id, owner="alice")]),
                await bob.signal([SignalRequest(job_id=job_id, name="go")]),
                await bob.delete([job_id]),
                await bob.delete([job_id], "alice"),
                await bob.apply([submit(job_id)]),
            ):
                assert [one.status for one in answers] == [Status.MISSING]
        assert await bob.get([parent.id], "alice") == [None]
        assert (await bob.find(Query(owner="alice"))).rows == []
        assert parent.id not in {one.id for one in (await bob.find(Query())).rows}
        assert await bob.flows([parent.flow_id or uuid4()]) == [None]
        assert (await bob.newest_flows(50)).flows == []
        assert (await bob.newest_flows(50, owner="alice")).flows == []
        assert [one.flow_id for one in (await alice.newest_flows(50)).flows] == [parent.flow_id]
        assert await get_one(worker, parent.id) == row, "nothing has changed"
        assert (await get_one(alice, child.id)).held
        [flow] = await alice.flows([parent.flow_id or uuid4()])
        assert flow is not None
        assert flow.jobs == 1
        await worker.apply([settle(row, Succeeded(), random=no_jitter)])


async def test_a_key_of_an_owner_enqueues_for_that_owner_only(locked: Served) -> None:
    async with (
        remote(locked, Role.PRODUCER, owner="carol", team="blue") as carol,
        remote(locked, Role.PRODUCER, owner="dora") as dora,
    ):
        foreign = make_job(flow_id=uuid7())
        await dora.enqueue([foreign])
        jobs = [
            make_job(),
            make_job(owner="dora"),
            make_job(team="red"),
            make_job(depends_on=(foreign.id,)),
            make_job(retry_of=foreign.id),
            make_job(flow_id=foreign.flow_id),
            make_job(owner="carol", team="blue", flow_id=uuid7()),
        ]
        answers = await carol.enqueue(jobs)
        assert [one.status for one in answers] == [
            EnqueueStatus.CREATED,
            *[EnqueueStatus.REFUSED] * 5,
            EnqueueStatus.CREATED,
        ]
        kinds = [type(one.error) for one in answers[1:6]]
        assert kinds == [InvalidArgumentError] * 2 + [NotFoundError] * 3
        for place in (0, 6):
            row = answers[place].row
            assert row is not None
            assert (row.owner, row.team) == ("carol", "blue")
            assert row == await get_one(carol, jobs[place].id)
        assert await carol.get([job.id for job in jobs[1:6]]) == [None] * 5

        together = [make_job(), make_job(owner="dora")]
        both = await carol.enqueue(together, atomic=True)
        assert [one.status for one in both] == [EnqueueStatus.REFUSED] * 2
        assert await carol.get([job.id for job in together]) == [None, None]
        chain = [make_job(flow_id=uuid7())]
        chain.append(make_job(flow_id=chain[0].flow_id, depends_on=(chain[0].id,)))
        both = await carol.enqueue(chain, atomic=True)
        assert [one.status for one in both] == [EnqueueStatus.CREATED] * 2


async def test_another_teams_job_does_not_answer_for_ones_own(locked: Served) -> None:
    async with (
        remote(locked, Role.PRODUCER, team="green") as green,
        remote(locked, Role.PRODUCER, team="grey") as grey,
    ):
        first = make_job(request_id="same", unique_key="same")
        await green.enqueue([first])
        for again in (make_job(request_id="same"), make_job(unique_key="same"), first):
            [answer] = await grey.enqueue([again])
            assert (answer.status, answer.row) == (EnqueueStatus.CONFLICT, None)
            assert str(first.id) not in str(answer.error) or again is first
        [answer] = await grey.enqueue([make_job(depends_on=(first.id,))])
        assert isinstance(answer.error, NotFoundError)


async def test_another_teams_job_does_not_give_way(locked: Served) -> None:
    async with (
        remote(locked, Role.PRODUCER, team="green") as green,
        remote(locked, Role.PRODUCER, team="grey") as grey,
    ):
        first = make_job(unique_key="waiting")
        await green.enqueue([first])
        [answer] = await grey.enqueue([make_job(unique_key="waiting", debounce=True)])
        [row] = await green.get([first.id])
    assert not answer.accepted
    assert row is not None
    assert not row.final


# -- small data


async def test_secrets_are_out_of_reach(locked: Served) -> None:
    for role in ROLES:
        async with remote(locked, role) as store:
            put = Put(kind=TICKET, key="x", value=b"{}")
            for call in (
                store.list_records(TICKET),
                store.get_records(TICKET, ["x"]),
                store.put_records([put]),
                store.delete_records(TICKET, ["x"]),
                store.delete_records(AUDIT, ["x"]),
                store.delete_records(API_KEY, ["x"]),
            ):
                with pytest.raises(StoreDeniedError):
                    await call
            if role is Role.ADMIN:
                continue
            for kind in (API_KEY, AUDIT, "signing-key", "session", "anything"):
                for call in (
                    store.list_records(kind),
                    store.get_records(kind, ["x"]),
                    store.put_records([Put(kind=kind, key="x", value=b"{}")]),
                    store.put_records(
                        [Put(kind=WORKER, key="w", value=b"{}"), Put(kind=kind, key="x", value=b"")]
                    ),
                    store.delete_records(kind, ["x"]),
                ):
                    with pytest.raises(StoreDeniedError):
                        await call


READ = {
    WORKER: ALL, LIMIT: ALL, SCHEDULE: ALL, MARK: ALL, PAUSED: ALL, UNKNOWN_TASK: FOR_WORK,
}  # fmt: skip
WRITE = {
    WORKER: FOR_WORK,
    LIMIT: FOR_WORK | {Role.OPERATOR},
    SCHEDULE: FOR_WORK | {Role.OPERATOR},
    MARK: FOR_WORK | {Role.OPERATOR},
    PAUSED: {Role.OPERATOR, Role.ADMIN},
    UNKNOWN_TASK: FOR_WORK,
}


@pytest.mark.parametrize("role", ROLES)
async def test_each_kind_of_record_is_for_those_who_need_it(locked: Served, role: Role) -> None:
    limit = LimitSetting(override=Limit(concurrency=9)).encode()
    async with remote(locked, role) as store, remote(locked, role, owner="eve") as part:
        for kind, readers in READ.items():
            writers = WRITE[kind]
            key = "queue:nowhere" if kind == LIMIT else f"of-{role}"
            value = limit if kind == LIMIT else b"{}"
            put = Put(kind=kind, key=key, value=value)
            for call, allowed in (
                (store.list_records(kind, "~"), role in readers),
                (store.get_records(kind, [key]), role in readers or kind == LIMIT),
                (store.put_records([put]), role in writers),
                (store.delete_records(kind, [key]), role in writers),
                (part.list_records(kind, "~"), False),
                (part.get_records(kind, [key]), kind == LIMIT),
                (part.put_records([put]), False),
                (part.delete_records(kind, [key]), False),
            ):
                assert await _is_let(call) is allowed, kind


async def _is_let(call: Awaitable[Any]) -> bool:
    try:
        await call
    except StoreDeniedError:
        return False
    return True


# -- what is on record


async def test_what_people_do_by_it_is_noted(locked: Served) -> None:
    async with remote(locked, Role.ADMIN) as store:
        held, ended = make_job(queue="noted", hold=True), make_job(queue="noted")
        await store.enqueue([held, ended])
        await store.apply([submit(held.id)])
        await store.cancel([CancelRequest(job_id=held.id), CancelRequest(job_id=ended.id)])
        again = make_job(queue="noted", retry_of=ended.id)
        await store.enqueue([again])
        await store.signal([SignalRequest(job_id=again.id, name="go")])
        await store.delete([held.id])
        await store.pause(["noted"], paused=True)
        await store.pause(["noted"], paused=False)
        await store.put_records([Put(kind=SCHEDULE, key="noted", value=b"{}")])
        await store.delete_records(SCHEDULE, ["noted"])
        notes = [(one.action, one.target) for one in await AuditLog(store).list(limit=9)]
    assert notes[::-1] == [
        ("submit", str(held.id)),
        ("cancel", f"{held.id} {ended.id}"),
        ("retry", str(ended.id)),
        ("signal", str(again.id)),
        ("delete", str(held.id)),
        ("pause queue", "noted"),
        ("resume queue", "noted"),
        ("write schedule", "noted"),
        ("delete schedule", "noted"),
    ]


async def test_a_note_can_be_added_and_never_changed(locked: Served) -> None:
    async with remote(locked, Role.ADMIN) as store:
        await AuditLog(store).append(None, "me", "look", "there")
        [entry] = await store.list_records(AUDIT, limit=1)
        [answer] = await store.put_records([Put(kind=AUDIT, key=entry.key, value=b"{}")])
        assert not answer.applied
        assert await store.get_records(AUDIT, [entry.key]) == [entry]


# -- the protocol


@pytest.mark.parametrize("version", [None, "0", "2", "x" * 99])
def test_another_version_is_refused_by_name(locked: Served, version: str | None) -> None:
    with locked.client(locked.key(Role.ADMIN)) as web:
        for verb in (*MAY, *SERVER_VERBS):
            headers = {} if version is None else {wire_format.PROTOCOL_HEADER: version}
            answer = web.post(f"{wire_format.PATH}/{verb}", content=b"{}", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "protocol")


def test_nonsense_is_refused_and_never_a_fault_of_the_server(locked: Served) -> None:
    headers = {wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL}
    wrong: list[Any] = [None, [], 5, {"jobs": 5}, {"ids": ["x"]}, {"claim": {}}, {"query": []}]
    with locked.client(locked.key(Role.ADMIN)) as web:
        for verb in (*MAY, "tail"):
            for body in [b"", b"{", b"\xff", *(json.dumps(one).encode() for one in wrong)]:
                answer = web.post(f"{wire_format.PATH}/{verb}", content=body, headers=headers)
                takes_nothing = verb in {"ping", "stats"}
                assert answer.status_code == 422 or (takes_nothing and answer.status_code == 200)
        deep = b'{"jobs":' + b"[" * 10_000
        assert (
            web.post(f"{wire_format.PATH}/enqueue", content=deep, headers=headers).status_code
            == 422
        )
        large = b'{"ids":["' + b"x" * (17 * 2**20)
        assert (
            web.post(f"{wire_format.PATH}/get", content=large, headers=headers).status_code == 413
        )
        job = json.loads(wire_format.request_schema("enqueue").dump(jobs=[make_job()]))
        job["jobs"][0]["payload"] = base64.b64encode(b"\xff" * 2**20 + b"!").decode()
        answer = web.post(f"{wire_format.PATH}/enqueue", json=job, headers=headers)
        assert answer.json()["result"][0]["error"]["code"] == "too_large"


async def test_whoever_waits_and_goes_leaves_nothing_behind(
    locked: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their wait ends with them, not when its time is over."""
    monkeypatch.setattr("windlass.server.routes.store.MAX_WAIT", 1000.0)

    async def waits() -> int:
        return sum("StoreWakeups.wait" in str(task.get_coro()) for task in asyncio.all_tasks())

    def count() -> int:
        return asyncio.run_coroutine_threadsafe(waits(), locked.loop).result(PATIENCE)

    async with remote(locked, Role.WORKER) as store:
        await claim_all(store, "nothing")
        waiting = asyncio.ensure_future(store.wait(["nothing"], 1000))
        await asyncio.to_thread(until, lambda: count() == 1, "the wait")
        waiting.cancel()
        await asyncio.to_thread(until, lambda: count() == 0, "its end")


async def test_a_server_that_stops_ends_the_waits_of_workers(tmp_path: Any) -> None:
    with serving(tmp_path, ServerConfig(auth=AuthMode.OPEN)) as one:
        store = HttpStore(HttpConfig(url=one.url, connect_retries=()))
        await claim_all(store)
        waiting = asyncio.ensure_future(store.wait(["default"], 60))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(one.stop)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreUnavailableError):
                await waiting
        await store.close()


async def test_a_refusal_names_the_key_and_what_to_do(locked: Served) -> None:
    key = make_key(locked, Role.VIEWER)
    name = key.split("_")[1]
    async with HttpStore(HttpConfig(url=locked.url, key=key)) as store:
        with pytest.raises(
            StoreDeniedError, match=f"denied this to key {name}: this needs the permission 'work'"
        ):
            await store.due(1)
    async with HttpStore(HttpConfig(url=locked.url, key=f"wl_{name}_{'x' * 43}")) as store:
        with pytest.raises(StoreDeniedError, match=f"rejected key {name}: .*WINDLASS_KEY"):
            await store.ping()
    async with HttpStore(HttpConfig(url=locked.url)) as store:
        with pytest.raises(StoreDeniedError, match="requires an API key: set WINDLASS_KEY"):
            await store.ping()
