"""Permissions of `apply` through the store protocol: each request of each role, alone and mixed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.server.conftest import WAIT_TIMEOUT, LiveServer, run_server
from tests.server.remote.test_store_access import remote

from windlass.core.decisions.maintenance import promote, rescue
from windlass.core.decisions.outcome import Released, Succeeded, settle
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    CancelRequest,
    SignalRequest,
    Status,
    Transition,
    submit,
)
from windlass.core.errors import StoreDeniedError
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.state import State, Trigger
from windlass.server.auth.api_keys import Role
from windlass.server.auth.audit import AuditLog
from windlass.server.auth.permissions import ROLE_PERMISSIONS
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.remote.apply_access import PERMISSIONS
from windlass.stores import wire_format
from windlass.stores.http import HttpStore
from windlass.stores.sqlite import SqliteStore
from windlass.testing import make_job
from windlass.testing.factories import claim_one, get_one, no_jitter

ROLES = list(Role)
INITIALS = {role.value[0]: role for role in ROLES}  # v, p, w, o, a
# Which roles may send which request, written by hand.
MATRIX = """
CancelRequest   . p w o a
SignalRequest   . p w o a
submit          . p w o a
cancel          . p w o a
enqueue         . . w . a
promote         . . w . a
claim           . . w . a
succeed         . . w . a
retry           . . w . a
fail            . . w . a
release         . . w . a
snooze          . . w . a
suspend         . . w . a
abort           . . w . a
crash           . . w . a
give-up         . . w . a
expire          . . w . a
parent-cancel   . . w . a
parent-fail     . . w . a
"""
ALLOWED = {
    name: {INITIALS[initial] for initial in initials if initial != "."}
    for name, *initials in map(str.split, MATRIX.strip().splitlines())
}


def request_of(name: str, job_id: UUID) -> ApplyRequest:
    if name == "CancelRequest":
        return CancelRequest(job_id=job_id)
    if name == "SignalRequest":
        return SignalRequest(job_id=job_id, name="go")
    trigger = Trigger(name)
    token = uuid7() if trigger.settles else None
    return Transition(job_id=job_id, fence=0, trigger=trigger, token=token)


def worker_only(job_id: UUID) -> dict[str, Transition]:
    """Return requests that only a worker may send: plain triggers with values of workers."""
    record = Record(n=1, type=EventType.LOG)
    more: dict[str, dict[str, Any]] = {
        "token": {"token": uuid7()},
        "result": {"result": b"1"},
        "children": {"children": (make_job(),)},
        "records": {"records": (record,)},
        "awaits": {"awaits": (uuid7(),)},
        "delay": {"delay": 1.0},
        "crash": {"crash": True},
        "signals": {"signals": 1},
    }
    return {
        f"{trigger} with {name}": Transition(job_id=job_id, fence=0, trigger=trigger, **values)
        for trigger in (Trigger.SUBMIT, Trigger.CANCEL)
        for name, values in more.items()
    }


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)
    with run_server(tmp_path_factory.mktemp("apply"), config) as live_server:
        yield live_server


async def statuses(store: HttpStore, *requests: ApplyRequest) -> list[Status]:
    return [answer.status for answer in await store.apply(requests)]


# -- roles


def test_every_request_is_in_the_table() -> None:
    names = {*Trigger, CancelRequest, SignalRequest}
    assert PERMISSIONS.keys() == names
    assert {name if isinstance(name, str) else name.__name__ for name in names} == ALLOWED.keys()
    for name, permissions in PERMISSIONS.items():
        roles = {role for role in ROLES if permissions & ROLE_PERMISSIONS[role]}
        assert roles == ALLOWED[name if isinstance(name, str) else name.__name__]


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_can_send_exactly_its_requests(
    keyed_server: LiveServer, role: Role
) -> None:
    async with remote(keyed_server, role) as store:
        for name, roles in ALLOWED.items():
            request = request_of(name, uuid4())
            if role in roles:
                assert await statuses(store, request) == [Status.MISSING], name
            else:
                with pytest.raises(StoreDeniedError, match="this needs the permission"):
                    await store.apply([request])


@pytest.mark.parametrize("role", ROLES)
async def test_a_scoped_key_never_acts_for_workers(keyed_server: LiveServer, role: Role) -> None:
    for scope in ({"owner": "alice"}, {"team": "red"}):
        async with remote(keyed_server, role, **scope) as store:
            for name, roles in ALLOWED.items():
                request = request_of(name, uuid4())
                # The permission `work` is unscoped only.
                if role in roles - {Role.WORKER} and Role.PRODUCER in roles:
                    assert await statuses(store, request) == [Status.MISSING], name
                else:
                    with pytest.raises(StoreDeniedError):
                        await store.apply([request])


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.OPERATOR])
async def test_values_of_workers_make_a_plain_trigger_theirs(
    keyed_server: LiveServer, role: Role
) -> None:
    async with remote(keyed_server, role) as store, remote(keyed_server, Role.WORKER) as worker:
        for name, request in worker_only(uuid4()).items():
            with pytest.raises(StoreDeniedError, match="permission 'work'"):
                await store.apply([request])
            assert await statuses(worker, request) == [Status.MISSING], name


# -- mixed calls


@pytest.mark.parametrize("role", [Role.PRODUCER, Role.OPERATOR])
async def test_a_cancel_smuggles_no_request_of_a_worker(
    keyed_server: LiveServer, role: Role
) -> None:
    """The call is refused as a whole: also the cancel changes nothing, at any position."""
    queue = f"smuggled by {role}"
    async with (
        remote(keyed_server, role) as store,
        remote(keyed_server, Role.ADMIN) as admin,
    ):
        running, waiting = make_job(queue=queue), make_job(queue=queue, hold=True)
        await admin.enqueue([running, waiting])
        row = await claim_one(admin, queue)
        before = await admin.get([running.id, waiting.id])
        forbidden: list[ApplyRequest] = [
            settle(row, Succeeded(), random=no_jitter),
            settle(row, Released(), random=no_jitter),
            rescue(row, random=no_jitter),
            promote(row),
            *worker_only(waiting.id).values(),
            *(request_of(name, row.id) for name, roles in ALLOWED.items() if role not in roles),
        ]
        allowed: list[ApplyRequest] = [
            CancelRequest(job_id=waiting.id),
            SignalRequest(job_id=running.id, name="go"),
            submit(waiting.id),
        ]
        for request in forbidden:
            for index in (0, 1, 3):
                mixed = [*allowed[:index], request, *allowed[index:]]
                with pytest.raises(StoreDeniedError, match="permission 'work'"):
                    await store.apply(mixed)
        assert await admin.get([running.id, waiting.id]) == before
        targets = [note.target for note in await AuditLog(admin).list(limit=20)]
        assert not any(str(waiting.id) in target for target in targets), "nothing happened"


async def test_a_worker_settles_cancels_and_signals_in_one_call(keyed_server: LiveServer) -> None:
    async with remote(keyed_server, Role.WORKER) as worker:
        jobs = [make_job(queue="mixed") for _ in range(3)]
        await worker.enqueue(jobs)
        row = await claim_one(worker, "mixed")
        answers = await worker.apply(
            [
                SignalRequest(job_id=jobs[1].id, name="go"),
                settle(row, Succeeded(), random=no_jitter),
                CancelRequest(job_id=jobs[2].id),
                CancelRequest(job_id=row.id),
            ]
        )
        assert [(answer.status, answer.state) for answer in answers] == [
            (Status.APPLIED, State.QUEUED),
            (Status.APPLIED, State.SUCCEEDED),
            (Status.APPLIED, State.CANCELED),
            (Status.CONFLICT, State.SUCCEEDED),
        ]


async def test_a_refused_call_does_not_refuse_a_concurrent_one(keyed_server: LiveServer) -> None:
    """Concurrent calls of one handle are sent together, but each is permitted alone."""
    async with remote(keyed_server, Role.PRODUCER) as store:
        jobs = [make_job(queue="alone") for _ in range(4)]
        await store.enqueue(jobs)
        calls: list[list[ApplyRequest]] = [
            [CancelRequest(job_id=jobs[0].id)],
            [CancelRequest(job_id=jobs[1].id)],
            [promote(await get_one(store, jobs[2].id))],
            [SignalRequest(job_id=jobs[3].id, name="go")],
        ]
        done = await asyncio.gather(*map(store.apply, calls), return_exceptions=True)
        assert [isinstance(one, StoreDeniedError) for one in done] == [False, False, True, False]
        rows = await store.get([job.id for job in jobs])
        assert [row and row.state for row in rows] == [
            State.CANCELED, State.CANCELED, State.QUEUED, State.QUEUED,
        ]  # fmt: skip


# -- scope


@pytest.mark.parametrize("scope", [{"owner": "ann"}, {"team": "red"}])
async def test_the_scope_of_a_key_holds_for_each_request(
    keyed_server: LiveServer, scope: dict[str, str]
) -> None:
    async with (
        remote(keyed_server, Role.PRODUCER, **scope) as ann,
        remote(keyed_server, Role.ADMIN) as admin,
    ):
        [own] = await ann.enqueue([make_job(queue="scoped", hold=True)])
        others = [
            make_job(queue="scoped", hold=True, owner="bob", team="blue"),
            make_job(queue="scoped", hold=True),
        ]
        await admin.enqueue(others)
        before = await admin.get([job.id for job in others])
        assert own.row is not None
        requests: list[ApplyRequest] = []
        for job_id in (others[0].id, own.row.id, others[1].id):
            requests += [
                SignalRequest(job_id=job_id, name="go"),
                SignalRequest(job_id=job_id, name="go", owner="bob"),
                submit(job_id),
                CancelRequest(job_id=job_id, owner="bob"),
                Transition(job_id=job_id, fence=0, trigger=Trigger.CANCEL),
                CancelRequest(job_id=job_id),
            ]
        found = await statuses(ann, *requests)
        missing = [Status.MISSING] * 6
        assert found[:6] == found[12:] == missing
        assert found[6:12] == [
            Status.APPLIED, Status.MISSING, Status.APPLIED,
            Status.MISSING, Status.APPLIED, Status.APPLIED,
        ]  # fmt: skip
        assert await admin.get([job.id for job in others]) == before


# -- messages


def test_a_request_without_its_kind_is_rejected(keyed_server: LiveServer) -> None:
    """Without it, a settle could be read as a cancel, or the reverse."""
    settle_fields = {"job_id": str(uuid4()), "fence": 1, "trigger": "succeed"}
    headers = {wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL}
    with keyed_server.client(keyed_server.key(Role.PRODUCER)) as web:
        for kind, status in ((None, 422), ("settle", 422), (["cancel"], 422), ("transition", 403)):
            body = {"requests": [{**settle_fields, **({"kind": kind} if kind else {})}]}
            response = web.post(f"{wire_format.PATH}/apply", json=body, headers=headers)
            assert response.status_code == status, response.text
        cancel = {"requests": [{**settle_fields, "kind": "cancel"}]}
        response = web.post(f"{wire_format.PATH}/apply", json=cancel, headers=headers)
        assert response.json()["result"][0]["status"] == "missing", "read and judged as a cancel"


async def test_a_cancel_that_waits_blocks_no_other_call_of_the_same_handle(
    keyed_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job of the cancel may be locked by a transaction."""
    apply, started, go = SqliteStore.apply, threading.Event(), threading.Event()

    async def slow_cancel(self: SqliteStore, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        if isinstance(requests[0], CancelRequest):
            started.set()
            await asyncio.to_thread(go.wait, WAIT_TIMEOUT)
        return await apply(self, requests)

    monkeypatch.setattr(SqliteStore, "apply", slow_cancel)
    async with remote(keyed_server, Role.WORKER) as store:
        canceled = make_job(queue="waits")
        await store.enqueue([canceled, make_job(queue="waits-not")])
        row = await claim_one(store, queue="waits-not")
        canceling = asyncio.create_task(statuses(store, CancelRequest(job_id=canceled.id)))
        assert await asyncio.to_thread(started.wait, WAIT_TIMEOUT)
        for request in (
            SignalRequest(job_id=canceled.id, name="go"),
            settle(row, Succeeded(), random=no_jitter),
        ):
            answer = await asyncio.wait_for(statuses(store, request), WAIT_TIMEOUT / 2)
            assert answer == [Status.APPLIED]
        go.set()
        assert await canceling == [Status.APPLIED]
