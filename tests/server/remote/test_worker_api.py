"""The worker API: remote workers claim jobs over HTTP, and report with task tokens."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import LiveServer, enqueue, read_messages, run_server, until

from windlass.core.clock import SECOND, SystemClock
from windlass.core.decisions.maintenance import sweep
from windlass.core.task_token import TaskToken
from windlass.server.auth.api_keys import Role
from windlass.server.auth.token_signer import TokenSigner
from windlass.testing.factories import expired_jobs

QUEUE = "far"
T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with run_server(tmp_path_factory.mktemp("far")) as live_server:
        yield live_server


@pytest.fixture
def worker(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client(server.key(Role.WORKER)) as client:
        yield client


@pytest.fixture
def admin(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client(server.key(Role.ADMIN)) as client:
        yield client


def claim(client: httpx.Client, queue: str = QUEUE, **more: Any) -> list[dict[str, Any]]:
    body = {"worker": "go-1", "queues": {queue: 10}, "tasks": ["add"], **more}
    response = client.post("/api/worker/claim", json=body)
    assert response.status_code == 200, response.text
    jobs: list[dict[str, Any]] = response.json()["jobs"]
    return jobs


def start(admin: httpx.Client, worker: httpx.Client, **more: Any) -> tuple[str, str]:
    """Enqueue and claim a job; return its id and task token."""
    queue = f"far-{uuid4()}"
    job = enqueue(admin, "add", {"queue": queue}, a=1)
    [claimed] = claim(worker, queue, **more)
    assert claimed["job"]["id"] == job["id"]
    return job["id"], claimed["taskToken"]


def report(client: httpx.Client, verb: str, token: str | None, **more: Any) -> dict[str, Any]:
    """Report about one attempt; return the result."""
    task = more if token is None else {"taskToken": token, **more}
    response = client.post(f"/api/worker/{verb}", json={"tasks": [task]})
    assert response.status_code == 200, response.text
    [found] = response.json()["results"]
    result: dict[str, Any] = found
    return result


def state(admin: httpx.Client, job_id: str) -> str:
    found: str = admin.get(f"/api/jobs/{job_id}").json()["state"]
    return found


def test_a_remote_worker_claims_reports_and_settles_a_job(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)

    records = [
        {
            "n": 1,
            "type": "step-progress",
            "percent": 40,
            "stage": "voice",
            "data": {"message": "…"},
        },
        {"n": 2, "type": "log", "data": {"level": "info", "message": "hello"}},
    ]
    assert report(worker, "record", token, records=records)["status"] == "applied"
    extended = report(worker, "extend", token)
    assert (extended["status"], extended["cancelRequested"]) == ("applied", False)
    response = report(
        worker, "settle", extended["taskToken"], outcome="succeeded", result={"sum": 1}
    )

    assert response == {"status": "applied", "state": "succeeded", "problem": None}
    job = admin.get(f"/api/jobs/{job_id}").json()
    assert (job["state"], job["result"], job["worker"]) == ("succeeded", {"sum": 1}, "go-1")
    events = read_messages(
        admin.get(f"/api/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
    )
    progress = next(event for event in events if event.type == "step-progress")
    assert (progress.data["progressPct"], progress.data["phase"]) == (40, "tts")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_a_claim_returns_arguments_attempt_and_lease(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    queue = f"far-{uuid4()}"
    enqueue(admin, "add", {"queue": queue}, a=4, b=5)

    [claimed] = claim(worker, queue, lease="2m")

    assert claimed["job"]["arguments"] == {"a": 4, "b": 5}
    assert (claimed["job"]["attempt"], claimed["checkpoints"], claimed["timeout"]) == (1, {}, None)
    assert claimed["leaseUntil"] > claimed["job"]["startedAt"]


def test_a_repeated_claim_id_returns_the_same_jobs(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    queue, claim_id = f"far-{uuid4()}", str(uuid4())
    job = enqueue(admin, "add", {"queue": queue}, a=1)

    first = claim(worker, queue, claimId=claim_id)
    again = claim(worker, queue, claimId=claim_id)

    assert (
        [item["job"]["id"] for item in first]
        == [item["job"]["id"] for item in again]
        == [job["id"]]
    )
    assert (
        report(worker, "settle", again[0]["taskToken"], outcome="succeeded")["status"] == "applied"
    )


def test_a_repeated_settle_returns_the_same_result(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)

    first = report(worker, "settle", token, outcome="succeeded", result=1)

    assert report(worker, "settle", token, outcome="succeeded", result=1) == first


def test_a_claim_waits_for_a_job(
    server: LiveServer, admin: httpx.Client, worker: httpx.Client
) -> None:
    queue, found = f"far-{uuid4()}", list[dict[str, Any]]()
    waits = Thread(target=lambda: found.extend(claim(worker, queue, wait=20)))
    waits.start()
    until(lambda: server.context.hub.long_polls, "the claim waits")

    job = enqueue(admin, "add", {"queue": queue}, a=1)

    waits.join(20)
    assert [item["job"]["id"] for item in found] == [job["id"]]


def test_a_waiting_claim_gets_no_job_after_its_key_is_revoked(
    server: LiveServer, admin: httpx.Client
) -> None:
    token, key_id = server.key_and_id(Role.WORKER)
    queue, found = f"far-{uuid4()}", list[dict[str, Any]]()
    with server.client(token) as revoked:
        waits = Thread(target=lambda: found.append({"jobs": claim(revoked, queue, wait=20)}))
        waits.start()
        until(lambda: server.context.hub.long_polls, "the claim waits")
        assert admin.delete(f"/api/keys/{key_id}").status_code in {200, 204}
        waits.join(15)
    job = enqueue(admin, "add", {"queue": queue}, a=1)
    assert found == [{"jobs": []}]
    assert state(admin, job["id"]) == "queued"


def test_task_tokens_of_a_revoked_key_are_rejected(server: LiveServer, admin: httpx.Client) -> None:
    token, key_id = server.key_and_id(Role.WORKER)
    with server.client(token) as revoked:
        job_id, task_token = start(admin, revoked)
    with server.client(server.key(Role.WORKER)) as other, server.client(task_token) as token_client:
        assert report(token_client, "extend", None)["status"] == "applied"
        admin.delete(f"/api/keys/{key_id}")
        extend: dict[str, Any] = {"tasks": [{}]}
        until(
            lambda: token_client.post("/api/worker/extend", json=extend).status_code == 401,
            "the token is rejected",
        )
        response = report(other, "settle", task_token, outcome="succeeded", result=1)
    assert (response["status"], "revoked" in str(response["problem"])) == ("refused", True)
    assert state(admin, job_id) == "running"


# -- outcomes


def test_a_failed_attempt_is_retried(admin: httpx.Client, worker: httpx.Client) -> None:
    job_id, token = start(admin, worker)
    error = {"type": "IOError", "message": "disk full", "traceback": "at line 3"}

    response = report(worker, "settle", token, outcome="failed", error=error, delay="1h")

    assert (response["status"], response["state"]) == ("applied", "retrying")
    job = admin.get(f"/api/jobs/{job_id}").json()
    assert job["lastError"]["message"] == "disk full"
    assert job["retryCount"] == 1
    assert job["dueAt"] > job["updatedAt"]


def test_a_non_retryable_error_fails_the_job(admin: httpx.Client, worker: httpx.Client) -> None:
    job_id, token = start(admin, worker)
    error = {"type": "BadInput", "message": "no such codec", "retryable": False, "code": "codec"}

    response = report(worker, "settle", token, outcome="failed", error=error)

    assert response["state"] == "failed"
    assert admin.get(f"/api/jobs/{job_id}").json()["errorCode"] == "codec"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"outcome": "released"}, "queued"),
        ({"outcome": "snoozed", "delay": 3600}, "retrying"),
        ({"outcome": "canceled", "reason": "not wanted"}, "canceled"),
    ],
)
def test_an_attempt_can_be_released_snoozed_or_canceled(
    admin: httpx.Client, worker: httpx.Client, outcome: dict[str, Any], expected: str
) -> None:
    job_id, token = start(admin, worker)

    assert report(worker, "settle", token, **outcome)["status"] == "applied"

    assert state(admin, job_id) == expected
    assert admin.get(f"/api/jobs/{job_id}").json()["retryCount"] == 0


def test_an_accepted_cancel_wins_and_the_worker_is_notified(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    admin.post(f"/api/jobs/{job_id}/cancel")

    extended = report(worker, "extend", token)
    response = report(worker, "settle", extended["taskToken"], outcome="succeeded", result=1)

    assert extended["cancelRequested"] is True
    assert (response["status"], response["state"]) == ("applied", "canceled")


def test_the_next_attempt_gets_recorded_checkpoints(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    done = {"n": 1, "type": "step-status", "step": "voice", "status": "done", "checkpoint": [1, 2]}

    report(worker, "record", token, records=[done])
    report(worker, "record", token, records=[done | {"checkpoint": "repeat"}])
    report(worker, "settle", token, outcome="released")
    [again] = claim(worker, admin.get(f"/api/jobs/{job_id}").json()["queue"])

    assert again["checkpoints"] == {"voice": [1, 2]}
    assert again["job"]["attempt"] == 2


@pytest.mark.parametrize(
    ("outcome", "field"),
    [
        ({"outcome": "failed"}, "error"),
        ({"outcome": "snoozed"}, "delay"),
        ({"outcome": "succeeded", "delay": 3}, "delay"),
        ({"outcome": "released", "result": 3}, "result"),
        ({"outcome": "snoozed", "delay": "soon"}, "delay"),
    ],
)
def test_a_field_that_does_not_belong_to_the_outcome_is_reported(
    admin: httpx.Client, worker: httpx.Client, outcome: dict[str, Any], field: str
) -> None:
    job_id, token = start(admin, worker)

    response = report(worker, "settle", token, **outcome)

    assert response["status"] == "refused"
    assert [error["field"] for error in response["problem"]["errors"]] == [field]
    assert state(admin, job_id) == "running"


def test_an_invalid_item_does_not_affect_the_others(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    (first, one), (second, two) = start(admin, worker), start(admin, worker)
    tasks = [
        {"taskToken": one, "outcome": "succeeded"},
        {"taskToken": one[:-2], "outcome": "succeeded"},
        {"outcome": "succeeded"},
        {"taskToken": two, "outcome": "succeeded"},
    ]

    response = worker.post("/api/worker/settle", json={"tasks": tasks}).json()["results"]

    assert [result["status"] for result in response] == ["applied", "refused", "refused", "applied"]
    assert {state(admin, first), state(admin, second)} == {"succeeded"}


def test_a_worker_cannot_record_a_lifecycle_event(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)

    response = report(worker, "record", token, records=[{"n": 1, "type": "job-completed"}])

    assert response["status"] == "refused"


# -- unknown tasks and presence


def test_a_job_of_an_unknown_task_is_snoozed_for_another_worker(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    queue = f"far-{uuid4()}"
    job = enqueue(admin, "broken", {"queue": queue}, why="x")

    assert claim(worker, queue) == []

    found = admin.get(f"/api/jobs/{job['id']}").json()
    assert (found["state"], found["retryCount"]) == ("retrying", 0)
    events = admin.get(f"/api/jobs/{job['id']}/events").json()["events"]
    assert "task 'broken' is not registered" in events[-2]["data"]["message"]


def test_a_worker_that_claims_is_listed(admin: httpx.Client, worker: httpx.Client) -> None:
    claim(worker, worker="rust-7")

    names = [item["name"] for item in admin.get("/api/workers").json()["workers"]]

    assert "rust-7" in names


# -- permissions


@pytest.mark.parametrize("role", [Role.VIEWER, Role.PRODUCER, Role.OPERATOR])
def test_other_roles_cannot_claim_jobs(server: LiveServer, role: Role) -> None:
    with server.client(server.key(role)) as client:
        body = {"worker": "x", "queues": {QUEUE: 1}, "tasks": ["add"]}

        assert client.post("/api/worker/claim", json=body).status_code == 403


def test_a_worker_key_of_one_owner_cannot_claim_jobs(server: LiveServer) -> None:
    with server.client(server.key(Role.WORKER, owner="ann")) as client:
        body = {"worker": "x", "queues": {QUEUE: 1}, "tasks": ["add"]}

        assert client.post("/api/worker/claim", json=body).status_code == 403


def test_a_task_token_authorizes_only_its_attempt(
    server: LiveServer, admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    other_id, other = start(admin, worker)
    with server.client(token) as token_client:
        record = {"n": 1, "type": "log", "data": {"level": "info", "message": "me"}}
        assert report(token_client, "record", None, records=[record])["status"] == "applied"
        extended = report(token_client, "extend", None)
        assert extended["status"] == "applied"
        foreign = report(token_client, "settle", other, outcome="succeeded")
        assert (foreign["status"], foreign["problem"]["code"]) == ("refused", "forbidden")
        assert report(token_client, "settle", extended["taskToken"], outcome="succeeded")[
            "state"
        ] == ("succeeded")
        for method, path in [
            ("POST", "/api/worker/claim"), ("GET", "/api/jobs"), ("GET", f"/api/jobs/{job_id}"),
            ("POST", f"/api/jobs/{other_id}/cancel"), ("GET", "/api/keys"), ("GET", "/metrics"),
        ]:  # fmt: skip
            assert token_client.request(method, path).status_code == 401, path
    assert state(admin, other_id) == "running"


# -- stale leases and expired tokens


def rescue(server: LiveServer, job_id: str) -> bool:
    """Rescue the job if its lease has expired; return whether it had."""

    async def sweeps() -> bool:
        store = server.app.client().store
        rows = [row for row in await expired_jobs(store, 100) if str(row.id) == job_id]
        responses = await store.apply([sweep(row, random=random.random) for row in rows])
        return any(response.applied for response in responses)

    return server.app.sync.call(sweeps())


def test_a_valid_token_of_a_stale_lease_is_rejected(
    server: LiveServer, admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, old = start(admin, worker, lease=0.001)
    until(lambda: rescue(server, job_id), "the lease is expired")
    [again] = claim(worker, admin.get(f"/api/jobs/{job_id}").json()["queue"])
    record = {"n": 9, "type": "log", "data": {"level": "info", "message": "stale"}}

    responses = [
        report(worker, "settle", old, outcome="succeeded", result="stale"),
        report(worker, "settle", old, outcome="failed", error={"type": "E", "message": "stale"}),
        report(worker, "settle", old, outcome="released"),
        report(worker, "extend", old),
        report(worker, "record", old, records=[record]),
    ]

    assert [response["status"] for response in responses] == ["stale"] * 5
    assert report(worker, "settle", again["taskToken"], outcome="succeeded", result="me")[
        "state"
    ] == ("succeeded")
    assert admin.get(f"/api/jobs/{job_id}").json()["result"] == "me"


async def signing(server: LiveServer, use: Callable[[TokenSigner], Awaitable[T]]) -> T:
    store = server.app.client().store
    return await use(TokenSigner(lambda: store))


def read(server: LiveServer, token: str) -> TaskToken | None:
    return server.app.sync.call(signing(server, lambda signer: signer.read(token)))


def sign(server: LiveServer, token: TaskToken) -> str:
    return server.app.sync.call(signing(server, lambda signer: signer.sign(token)))


def test_an_expired_task_token_is_rejected(
    server: LiveServer, admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    held = read(server, token)
    assert held is not None
    past = sign(server, replace(held, expires_at=SystemClock().now() - SECOND))

    refused = report(worker, "settle", past, outcome="succeeded")
    with server.client(past) as token_client:
        response = token_client.post("/api/worker/extend", json={"tasks": [{}]})

    assert refused["status"] == "refused"
    assert "expired" in refused["problem"]["detail"]
    assert response.status_code == 401
    assert state(admin, job_id) == "running"


def test_a_signed_token_of_another_lease_is_stale(
    server: LiveServer, admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)
    held = read(server, token)
    assert held is not None
    for lease in (
        replace(held.lease, token=uuid4()),
        replace(held.lease, fence=held.lease.fence + 1),
    ):
        forged = sign(server, replace(held, lease=lease))
        assert report(worker, "settle", forged, outcome="succeeded")["status"] == "stale"


def test_a_token_stays_valid_for_one_rotation_of_the_signing_key(
    server: LiveServer, admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)

    def rotate() -> None:
        server.app.sync.call(signing(server, TokenSigner.rotate))

    rotate()
    assert read(server, token) is not None
    rotate()

    assert read(server, token) is None
