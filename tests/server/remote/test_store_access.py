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
from tests.server.conftest import WAIT_TIMEOUT, LiveServer, run_server, until

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
from windlass.core.query.job_query import JobQuery
from windlass.core.schedule import MARK, SCHEDULE
from windlass.core.versioned_record import PAUSED, Put
from windlass.core.worker_presence import WORKER
from windlass.server.auth.api_keys import API_KEY, ApiKeys, Role
from windlass.server.auth.audit import AUDIT, AuditLog
from windlass.server.auth.tickets import TICKET
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.routes.store_protocol import STORE_METHODS
from windlass.store import Retention, Store, StoreInsights
from windlass.stores import wire_format
from windlass.stores.http import HttpConfig, HttpStore
from windlass.testing import make_job
from windlass.testing.factories import claim_all, claim_one, get_one, no_jitter, set_paused

ROLES = list(Role)
WORK_ROLES = {Role.WORKER, Role.ADMIN}
JOB_ROLES = {Role.PRODUCER, Role.WORKER, Role.OPERATOR, Role.ADMIN}
ALL = set(Role)
# Roles that can use each verb, written by hand.
VERB_ROLES = {
    "ping": ALL,
    "enqueue": JOB_ROLES,
    "claim": WORK_ROLES,
    "extend": WORK_ROLES,
    "apply": JOB_ROLES,
    "record": WORK_ROLES,
    "wait": WORK_ROLES,
    "due": WORK_ROLES,
    "prune": WORK_ROLES,
    "delete": {Role.OPERATOR, Role.ADMIN},
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
# Verbs that are not part of the store contract.
SERVER_VERBS = {"hello": ALL, "tail": ALL, "why": ALL, "rotate": {Role.ADMIN}}
# Verbs that a scoped key can use, if its role permits.
SCOPED_VERBS = {
    "ping", "enqueue", "apply", "delete", "get", "find", "count", "failures",
    "events", "attempts", "checkpoints", "edges", "flows", "newest_flows",
}  # fmt: skip


def call_arguments(verb: str) -> dict[str, Any]:
    """Return harmless arguments for a call of the verb."""
    job = uuid4()
    calls: dict[str, dict[str, Any]] = {
        "enqueue": {"jobs": [make_job()], "atomic": False},
        "claim": {"claim": Claim(token=uuid7(), worker="w", queues=[("none", 1)])},
        "extend": {"leases": [], "seconds": 1.0},
        "apply": {"requests": [submit(job)]},
        "record": {"attempt_records": []},
        "wait": {"queues": ["none"], "timeout": 0.0},
        "due": {"limit": 1},
        "prune": {"retention": Retention(), "limit": 1},
        "delete": {"ids": [job], "owner": None},
        "get": {"ids": [job], "owner": None},
        "find": {"query": JobQuery()},
        "count": {"query": JobQuery()},
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
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with run_server(
        tmp_path_factory.mktemp("locked"), ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)
    ) as live_server:
        yield live_server


def call_verb(web: httpx.Client, verb: str) -> httpx.Response:
    body = wire_format.request_schema(verb).dump(**call_arguments(verb))
    headers = {
        wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL,
        "Content-Type": "application/json",
    }
    return web.post(f"{wire_format.PATH}/{verb}", content=body, headers=headers)


def remote(
    server: LiveServer, *roles: Role, owner: str | None = None, team: str | None = None
) -> HttpStore:
    return HttpStore(
        HttpConfig(url=server.url, key=make_key(server, *roles, owner=owner, team=team))
    )


def make_key(
    server: LiveServer, *roles: Role, owner: str | None = None, team: str | None = None
) -> str:
    """Create a key on the event loop of the server, for tests with their own loop."""

    async def make() -> str:
        keys = ApiKeys(server.app.client().store)
        return (await keys.create("test", roles, owner=owner, team=team))[1]

    return asyncio.run_coroutine_threadsafe(make(), server.loop).result(WAIT_TIMEOUT)


# -- roles


def test_every_verb_of_the_contract_has_a_permission() -> None:
    assert STORE_METHODS.keys() == set(wire_format.METHODS) == VERB_ROLES.keys()
    methods = Store.__abstractmethods__ | StoreInsights.__abstractmethods__
    assert set(wire_format.METHODS) | wire_format.LOCAL_METHODS == methods
    assert Store.__abstractmethods__.isdisjoint(StoreInsights.__abstractmethods__)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_can_use_exactly_its_verbs(keyed_server: LiveServer, role: Role) -> None:
    with keyed_server.client(keyed_server.key(role)) as web:
        for verb, roles in VERB_ROLES.items():
            response = call_verb(web, verb)
            assert response.status_code == (200 if role in roles else 403), (verb, response.text)


@pytest.mark.parametrize("role", ROLES)
def test_a_scoped_key_cannot_use_verbs_about_all_jobs(keyed_server: LiveServer, role: Role) -> None:
    for scope in ({"owner": "alice"}, {"team": "red"}):
        with keyed_server.client(keyed_server.key(role, **scope)) as web:
            for verb, roles in VERB_ROLES.items():
                response = call_verb(web, verb)
                allowed = role in roles and verb in SCOPED_VERBS
                if role is Role.WORKER and verb in {"enqueue", "apply"}:
                    allowed = False  # the permission `work` is unscoped only
                assert response.status_code == (200 if allowed else 403), (verb, response.text)


@pytest.mark.parametrize("role", ROLES)
async def test_why_and_rotate_check_permissions_and_scope(
    keyed_server: LiveServer, role: Role
) -> None:
    async with remote(keyed_server, Role.PRODUCER) as store:
        own, other = make_job(queue="why", owner="eve"), make_job(queue="why")
        await store.enqueue([own, other])
    async with (
        remote(keyed_server, role) as all_,
        remote(keyed_server, role, owner="eve") as part,
    ):
        for item in (all_, part):
            assert (await item.why(own.id)).job_id == own.id
            assert await _is_permitted(item.rotate()) is (
                item is all_ and role in SERVER_VERBS["rotate"]
            )
        assert (await all_.why(other.id)).state is State.QUEUED
        with pytest.raises(NotFoundError, match=f"no job {other.id}"):
            await part.why(other.id)


def test_every_verb_requires_a_key(keyed_server: LiveServer) -> None:
    with keyed_server.client() as web:
        for verb in VERB_ROLES:
            assert call_verb(web, verb).status_code == 401
        for verb in SERVER_VERBS:
            assert web.post(f"{wire_format.PATH}/{verb}").status_code == 401


@pytest.mark.parametrize("role", sorted(JOB_ROLES - WORK_ROLES))
async def test_only_workers_can_settle_rescue_and_record(
    keyed_server: LiveServer, role: Role
) -> None:
    async with (
        remote(keyed_server, Role.ADMIN) as store,
        remote(keyed_server, role) as other_client,
    ):
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
                await other_client.apply([submit(row.id), transition])
        assert (await get_one(store, row.id)) == row
        await store.apply([transitions[0]])


async def test_only_workers_see_lease_tokens(keyed_server: LiveServer) -> None:
    async with (
        remote(keyed_server, Role.WORKER) as worker,
        remote(keyed_server, Role.PRODUCER) as producer,
    ):
        job = make_job(queue="tokens", unique_key="tokens")
        await producer.enqueue([job])
        row = await claim_one(worker, "tokens")
        assert row.token is not None
        assert (await get_one(worker, job.id)).token == row.token

        [again] = await producer.enqueue([make_job(queue="tokens", unique_key="tokens")])
        seen = [
            await get_one(producer, job.id),
            (await producer.find(JobQuery(queues=frozenset({"tokens"})))).rows[0],
            again.existing,
        ]
        for item in seen:
            assert isinstance(item, JobRow)
            assert (item.id, item.state, item.token) == (job.id, State.RUNNING, None)
        result = [event async for event in _stored_events(producer, job.id)]
        attempts = await producer.insights.attempts(job.id)
        assert str(row.token) not in f"{result} {attempts}"


async def _stored_events(store: HttpStore, job_id: UUID) -> Any:
    page = await store.events(job_id)
    assert page is not None
    for event in page.events:
        yield event


# -- visibility of jobs


async def test_a_job_of_another_owner_counts_as_missing(keyed_server: LiveServer) -> None:
    alice = remote(keyed_server, Role.OPERATOR, Role.PRODUCER, owner="alice")
    bob = remote(keyed_server, Role.OPERATOR, Role.PRODUCER, owner="bob")
    async with alice, bob, remote(keyed_server, Role.WORKER) as worker:
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
            assert await bob.insights.attempts(job_id) is None
            assert await bob.checkpoints([job_id]) == [{}]
            [edges] = await bob.edges([job_id])
            assert (edges.parents, edges.children) == ((), ())
            assert [event async for event in bob.tail(job_id)] == []
            for responses in (
                await bob.apply([CancelRequest(job_id=job_id)]),
                await bob.apply([CancelRequest(job_id=job_id, owner="alice")]),
                await bob.apply([SignalRequest(job_id=job_id, name="go")]),
                await bob.delete([job_id]),
                await bob.delete([job_id], "alice"),
                await bob.apply([submit(job_id)]),
            ):
                assert [response.status for response in responses] == [Status.MISSING]
        assert await bob.get([parent.id], "alice") == [None]
        assert (await bob.find(JobQuery(owner="alice"))).rows == []
        assert parent.id not in {item.id for item in (await bob.find(JobQuery())).rows}
        assert await bob.insights.flows([parent.flow_id or uuid4()]) == [None]
        assert (await bob.insights.newest_flows(50)).flows == []
        assert (await bob.insights.newest_flows(50, owner="alice")).flows == []
        assert [item.flow_id for item in (await alice.insights.newest_flows(50)).flows] == [
            parent.flow_id
        ]
        assert await get_one(worker, parent.id) == row, "nothing has changed"
        assert (await get_one(alice, child.id)).held
        [flow] = await alice.insights.flows([parent.flow_id or uuid4()])
        assert flow is not None
        assert flow.jobs == 1
        await worker.apply([settle(row, Succeeded(), random=no_jitter)])


async def test_a_key_of_an_owner_enqueues_only_for_that_owner(keyed_server: LiveServer) -> None:
    async with (
        remote(keyed_server, Role.PRODUCER, owner="carol", team="blue") as carol,
        remote(keyed_server, Role.PRODUCER, owner="dora") as dora,
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
        responses = await carol.enqueue(jobs)
        assert [response.status for response in responses] == [
            EnqueueStatus.CREATED,
            *[EnqueueStatus.REFUSED] * 5,
            EnqueueStatus.CREATED,
        ]
        kinds = [type(response.error) for response in responses[1:6]]
        assert kinds == [InvalidArgumentError] * 2 + [NotFoundError] * 3
        for place in (0, 6):
            row = responses[place].row
            assert row is not None
            assert (row.owner, row.team) == ("carol", "blue")
            assert row == await get_one(carol, jobs[place].id)
        assert await carol.get([job.id for job in jobs[1:6]]) == [None] * 5

        together = [make_job(), make_job(owner="dora")]
        both = await carol.enqueue(together, atomic=True)
        assert [item.status for item in both] == [EnqueueStatus.REFUSED] * 2
        assert await carol.get([job.id for job in together]) == [None, None]
        chain = [make_job(flow_id=uuid7())]
        chain.append(make_job(flow_id=chain[0].flow_id, depends_on=(chain[0].id,)))
        both = await carol.enqueue(chain, atomic=True)
        assert [item.status for item in both] == [EnqueueStatus.CREATED] * 2


async def test_a_job_of_another_team_is_never_returned_as_a_duplicate(
    keyed_server: LiveServer,
) -> None:
    async with (
        remote(keyed_server, Role.PRODUCER, team="green") as green,
        remote(keyed_server, Role.PRODUCER, team="gray") as gray,
    ):
        first = make_job(request_id="same", unique_key="same")
        await green.enqueue([first])
        for again in (make_job(request_id="same"), make_job(unique_key="same"), first):
            [response] = await gray.enqueue([again])
            assert (response.status, response.row) == (EnqueueStatus.CONFLICT, None)
            assert str(first.id) not in str(response.error) or again is first
        [response] = await gray.enqueue([make_job(depends_on=(first.id,))])
        assert isinstance(response.error, NotFoundError)


async def test_debounce_does_not_replace_a_job_of_another_team(
    keyed_server: LiveServer,
) -> None:
    async with (
        remote(keyed_server, Role.PRODUCER, team="green") as green,
        remote(keyed_server, Role.PRODUCER, team="gray") as gray,
    ):
        first = make_job(unique_key="waiting")
        await green.enqueue([first])
        [response] = await gray.enqueue([make_job(unique_key="waiting", debounce=True)])
        [row] = await green.get([first.id])
    assert not response.accepted
    assert row is not None
    assert not row.final


# -- records


async def test_secret_records_are_not_accessible(keyed_server: LiveServer) -> None:
    for role in ROLES:
        async with remote(keyed_server, role) as store:
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
    WORKER: ALL, LIMIT: ALL, SCHEDULE: ALL, MARK: ALL, PAUSED: ALL, UNKNOWN_TASK: WORK_ROLES,
}  # fmt: skip
WRITE = {
    WORKER: WORK_ROLES,
    LIMIT: WORK_ROLES | {Role.OPERATOR},
    SCHEDULE: WORK_ROLES | {Role.OPERATOR},
    MARK: WORK_ROLES | {Role.OPERATOR},
    PAUSED: {Role.OPERATOR, Role.ADMIN},
    UNKNOWN_TASK: WORK_ROLES,
}


@pytest.mark.parametrize("role", ROLES)
async def test_each_record_kind_has_its_permissions(keyed_server: LiveServer, role: Role) -> None:
    limit = LimitSetting(override=Limit(concurrency=9)).encode()
    async with (
        remote(keyed_server, role) as store,
        remote(keyed_server, role, owner="eve") as part,
    ):
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
                assert await _is_permitted(call) is allowed, kind


async def _is_permitted(call: Awaitable[Any]) -> bool:
    try:
        await call
    except StoreDeniedError:
        return False
    return True


# -- audit log


async def test_actions_through_the_store_protocol_are_audited(keyed_server: LiveServer) -> None:
    async with remote(keyed_server, Role.ADMIN) as store:
        held, ended = make_job(queue="noted", hold=True), make_job(queue="noted")
        await store.enqueue([held, ended])
        await store.apply([submit(held.id)])
        await store.apply([CancelRequest(job_id=held.id), CancelRequest(job_id=ended.id)])
        again = make_job(queue="noted", retry_of=ended.id)
        await store.enqueue([again])
        await store.apply([SignalRequest(job_id=again.id, name="go")])
        await store.delete([held.id])
        await set_paused(store, ["noted"], paused=True)
        await set_paused(store, ["noted"], paused=False)
        await store.put_records([Put(kind=SCHEDULE, key="noted", value=b"{}")])
        await store.delete_records(SCHEDULE, ["noted"])
        notes = [(item.action, item.target) for item in await AuditLog(store).list(limit=9)]
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


async def test_audit_entries_can_be_added_but_not_changed(keyed_server: LiveServer) -> None:
    async with remote(keyed_server, Role.ADMIN) as store:
        await AuditLog(store).append(None, "me", "look", "there")
        [entry] = await store.list_records(AUDIT, limit=1)
        [response] = await store.put_records([Put(kind=AUDIT, key=entry.key, value=b"{}")])
        assert not response.applied
        assert await store.get_records(AUDIT, [entry.key]) == [entry]


# -- the protocol


@pytest.mark.parametrize("version", [None, "0", "2", "x" * 99])
def test_another_protocol_version_is_rejected(
    keyed_server: LiveServer, version: str | None
) -> None:
    with keyed_server.client(keyed_server.key(Role.ADMIN)) as web:
        for verb in (*VERB_ROLES, *SERVER_VERBS):
            headers = {} if version is None else {wire_format.PROTOCOL_HEADER: version}
            response = web.post(f"{wire_format.PATH}/{verb}", content=b"{}", headers=headers)
            assert (response.status_code, response.json()["code"]) == (400, "protocol")


def test_malformed_store_requests_are_rejected(keyed_server: LiveServer) -> None:
    headers = {wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL}
    wrong: list[Any] = [None, [], 5, {"jobs": 5}, {"ids": ["x"]}, {"claim": {}}, {"query": []}]
    with keyed_server.client(keyed_server.key(Role.ADMIN)) as web:
        for verb in (*VERB_ROLES, "tail"):
            for body in [b"", b"{", b"\xff", *(json.dumps(item).encode() for item in wrong)]:
                response = web.post(f"{wire_format.PATH}/{verb}", content=body, headers=headers)
                takes_nothing = verb in {"ping", "stats"}
                assert response.status_code == 422 or (
                    takes_nothing and response.status_code == 200
                )
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
        response = web.post(f"{wire_format.PATH}/enqueue", json=job, headers=headers)
        assert response.json()["result"][0]["error"]["code"] == "too_large"


@pytest.mark.parametrize("verb", ["find", "count"])
def test_an_unknown_filter_of_a_query_is_refused(keyed_server: LiveServer, verb: str) -> None:
    """A server that ignored the filter of a newer client would return all jobs."""
    headers = {wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL}
    body = json.loads(wire_format.request_schema(verb).dump(**call_arguments(verb)))
    body["query"]["region"] = "north"
    with keyed_server.client(keyed_server.key(Role.ADMIN)) as web:
        response = web.post(f"{wire_format.PATH}/{verb}", json=body, headers=headers)
    assert response.status_code == 422
    assert "query.region" in response.json()["detail"]


async def test_a_disconnect_cancels_the_wait_of_a_worker(
    keyed_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait ends with the connection, not at its timeout."""
    monkeypatch.setattr("windlass.server.routes.store_protocol.MAX_WAIT", 1000.0)

    async def open_waits() -> int:
        return sum("StoreWakeups.wait" in str(task.get_coro()) for task in asyncio.all_tasks())

    def count() -> int:
        return asyncio.run_coroutine_threadsafe(open_waits(), keyed_server.loop).result(
            WAIT_TIMEOUT
        )

    async with remote(keyed_server, Role.WORKER) as store:
        await claim_all(store, "nothing")
        waiting = asyncio.ensure_future(store.wait(["nothing"], 1000))
        await asyncio.to_thread(until, lambda: count() == 1, "the wait")
        waiting.cancel()
        await asyncio.to_thread(until, lambda: count() == 0, "its end")


async def test_a_shutdown_ends_the_waits_of_workers(tmp_path: Any) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.OPEN)) as server:
        store = HttpStore(HttpConfig(url=server.url, connect_retries=()))
        await claim_all(store)
        waiting = asyncio.ensure_future(store.wait(["default"], 60))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(WAIT_TIMEOUT):
            with pytest.raises(StoreUnavailableError):
                await waiting
        await store.close()


async def test_a_permission_error_names_the_key_and_the_solution(
    keyed_server: LiveServer,
) -> None:
    key = make_key(keyed_server, Role.VIEWER)
    name = key.split("_")[1]
    async with HttpStore(HttpConfig(url=keyed_server.url, key=key)) as store:
        with pytest.raises(
            StoreDeniedError, match=f"denied this to key {name}: this needs the permission 'work'"
        ):
            await store.due(1)
    async with HttpStore(HttpConfig(url=keyed_server.url, key=f"wl_{name}_{'x' * 43}")) as store:
        with pytest.raises(StoreDeniedError, match=f"rejected key {name}: .*WINDLASS_KEY"):
            await store.ping()
    async with HttpStore(HttpConfig(url=keyed_server.url)) as store:
        with pytest.raises(StoreDeniedError, match="requires an API key: set WINDLASS_KEY"):
            await store.ping()


async def test_a_refused_write_of_records_is_not_audited(keyed_server: LiveServer) -> None:
    async with (
        remote(keyed_server, Role.ADMIN) as admin,
        remote(keyed_server, Role.OPERATOR) as operator,
    ):
        before = await AuditLog(admin).list(limit=5)
        puts = [Put(kind=PAUSED, key="calm", value=b""), Put(kind="anything", key="x", value=b"")]
        with pytest.raises(StoreDeniedError):
            await operator.put_records(puts)
        assert await AuditLog(admin).list(limit=5) == before
        assert await admin.get_records(PAUSED, ["calm"]) == [None]


async def test_statistics_of_many_flows_are_read_in_several_requests(
    keyed_server: LiveServer,
) -> None:
    """One request is bounded: it must not block the server for long."""
    async with remote(keyed_server, Role.VIEWER) as store:
        ids = [uuid7() for _ in range(wire_format.MAX_FLOW_IDS + 1)]
        assert await store.insights.flows(ids) == [None] * len(ids)
        with pytest.raises(InvalidArgumentError, match="split the request"):
            await store._call("flows", ids=ids, owner=None, team=None)


@pytest.mark.parametrize("number", [-1, 0, 10**30])
async def test_numbers_out_of_range_are_clamped(keyed_server: LiveServer, number: int) -> None:
    async with remote(keyed_server, Role.ADMIN) as store:
        assert isinstance(await store.due(number), list)
        assert await store.list_records(SCHEDULE, limit=number) == []
        await store.prune(Retention(), number)
        assert (await store.insights.failures(number, number)).jobs == []
        assert await store.insights.rollups(-number, number) is not None


async def test_a_limit_name_that_no_store_can_hold_is_rejected(keyed_server: LiveServer) -> None:
    async with remote(keyed_server, Role.ADMIN) as store:
        with pytest.raises(InvalidArgumentError, match="NUL"):
            await store.insights.gates(["a\0b"])
