"""Workers in any language: they take jobs over HTTP, and speak for them by task tokens."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import Served, enqueue, said, serving, until

from windlass.core.clock import SECOND, SystemClock
from windlass.core.decisions.maintenance import sweep
from windlass.core.task_token import TaskToken
from windlass.server.auth.api_keys import Role
from windlass.server.auth.task_tokens import TokenSigner

QUEUE = "far"
T = TypeVar("T")


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("far")) as one:
        yield one


@pytest.fixture
def worker(far: Served) -> Iterator[httpx.Client]:
    with far.client(far.key(Role.WORKER)) as client:
        yield client


@pytest.fixture
def admin(far: Served) -> Iterator[httpx.Client]:
    with far.client(far.key(Role.ADMIN)) as client:
        yield client


def claim(client: httpx.Client, queue: str = QUEUE, **more: Any) -> list[dict[str, Any]]:
    body = {"worker": "go-1", "queues": {queue: 10}, "tasks": ["add"], **more}
    answer = client.post("/api/worker/claim", json=body)
    assert answer.status_code == 200, answer.text
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


def start(admin: httpx.Client, worker: httpx.Client, **more: Any) -> tuple[str, str]:
    """A job that runs, and its token."""
    queue = f"far-{uuid4()}"
    job = enqueue(admin, "add", {"queue": queue}, a=1)
    [claimed] = claim(worker, queue, **more)
    assert claimed["job"]["id"] == job["id"]
    return job["id"], claimed["taskToken"]


def tell(client: httpx.Client, verb: str, token: str | None, **more: Any) -> dict[str, Any]:
    """One attempt's word, and the answer to it."""
    task = more if token is None else {"taskToken": token, **more}
    answer = client.post(f"/api/worker/{verb}", json={"tasks": [task]})
    assert answer.status_code == 200, answer.text
    [found] = answer.json()["results"]
    told: dict[str, Any] = found
    return told


def state(admin: httpx.Client, job_id: str) -> str:
    found: str = admin.get(f"/api/jobs/{job_id}").json()["state"]
    return found


def test_a_job_is_taken_spoken_for_and_settled(admin: httpx.Client, worker: httpx.Client) -> None:
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
    assert tell(worker, "record", token, records=records)["status"] == "applied"
    extended = tell(worker, "extend", token)
    assert (extended["status"], extended["cancelRequested"]) == ("applied", False)
    answer = tell(worker, "settle", extended["taskToken"], outcome="succeeded", result={"sum": 1})

    assert answer == {"status": "applied", "state": "succeeded", "problem": None}
    job = admin.get(f"/api/jobs/{job_id}").json()
    assert (job["state"], job["result"], job["worker"]) == ("succeeded", {"sum": 1}, "go-1")
    events = said(admin.get(f"/api/jobs/{job_id}/events", headers={"Accept": "text/event-stream"}))
    progress = next(one for one in events if one.type == "step-progress")
    assert (progress.data["progressPct"], progress.data["phase"]) == (40, "tts")
    assert [one.seq for one in events] == list(range(1, len(events) + 1))


def test_a_claim_answers_what_a_worker_needs(admin: httpx.Client, worker: httpx.Client) -> None:
    queue = f"far-{uuid4()}"
    enqueue(admin, "add", {"queue": queue}, a=4, b=5)

    [claimed] = claim(worker, queue, lease="2m")

    assert claimed["job"]["arguments"] == {"a": 4, "b": 5}
    assert (claimed["job"]["attempt"], claimed["checkpoints"], claimed["timeout"]) == (1, {}, None)
    assert claimed["leaseUntil"] > claimed["job"]["startedAt"]


def test_a_claim_whose_answer_was_lost_is_answered_again(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    queue, claim_id = f"far-{uuid4()}", str(uuid4())
    job = enqueue(admin, "add", {"queue": queue}, a=1)

    first = claim(worker, queue, claimId=claim_id)
    again = claim(worker, queue, claimId=claim_id)

    assert [one["job"]["id"] for one in first] == [one["job"]["id"] for one in again] == [job["id"]]
    assert tell(worker, "settle", again[0]["taskToken"], outcome="succeeded")["status"] == "applied"


def test_to_settle_again_is_answered_as_at_first(admin: httpx.Client, worker: httpx.Client) -> None:
    _, token = start(admin, worker)

    first = tell(worker, "settle", token, outcome="succeeded", result=1)

    assert tell(worker, "settle", token, outcome="succeeded", result=1) == first


def test_a_claim_waits_for_a_job(far: Served, admin: httpx.Client, worker: httpx.Client) -> None:
    queue, found = f"far-{uuid4()}", list[dict[str, Any]]()
    waits = Thread(target=lambda: found.extend(claim(worker, queue, wait=20)))
    waits.start()
    until(lambda: far.context.hub.long_polls, "the claim waits")

    job = enqueue(admin, "add", {"queue": queue}, a=1)

    waits.join(20)
    assert [one["job"]["id"] for one in found] == [job["id"]]


def test_who_waits_for_a_job_gets_none_once_its_key_is_revoked(
    far: Served, admin: httpx.Client
) -> None:
    token, key_id = far.key_and_id(Role.WORKER)
    queue, found = f"far-{uuid4()}", list[dict[str, Any]]()
    with far.client(token) as revoked:
        waits = Thread(target=lambda: found.append({"jobs": claim(revoked, queue, wait=20)}))
        waits.start()
        until(lambda: far.context.hub.long_polls, "the claim waits")
        assert admin.delete(f"/api/keys/{key_id}").status_code in {200, 204}
        waits.join(15)
    job = enqueue(admin, "add", {"queue": queue}, a=1)
    assert found == [{"jobs": []}]
    assert state(admin, job["id"]) == "queued"


def test_the_tokens_of_a_revoked_key_speak_for_nothing(far: Served, admin: httpx.Client) -> None:
    token, key_id = far.key_and_id(Role.WORKER)
    with far.client(token) as revoked:
        job_id, task_token = start(admin, revoked)
    with far.client(far.key(Role.WORKER)) as other, far.client(task_token) as alone:
        assert tell(alone, "extend", None)["status"] == "applied"
        admin.delete(f"/api/keys/{key_id}")
        extend: dict[str, Any] = {"tasks": [{}]}
        until(
            lambda: alone.post("/api/worker/extend", json=extend).status_code == 401,
            "the token alone opens nothing",
        )
        answer = tell(other, "settle", task_token, outcome="succeeded", result=1)
    assert (answer["status"], "revoked" in str(answer["problem"])) == ("refused", True)
    assert state(admin, job_id) == "running"


# -- how an attempt may end


def test_an_error_is_tried_again_as_the_job_says(admin: httpx.Client, worker: httpx.Client) -> None:
    job_id, token = start(admin, worker)
    error = {"type": "IOError", "message": "disk full", "traceback": "at line 3"}

    answer = tell(worker, "settle", token, outcome="failed", error=error, delay="1h")

    assert (answer["status"], answer["state"]) == ("applied", "retrying")
    job = admin.get(f"/api/jobs/{job_id}").json()
    assert job["lastError"]["message"] == "disk full"
    assert job["retryCount"] == 1
    assert job["dueAt"] > job["updatedAt"]


def test_an_error_that_no_retry_mends_ends_the_job(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    error = {"type": "BadInput", "message": "no such codec", "retryable": False, "code": "codec"}

    answer = tell(worker, "settle", token, outcome="failed", error=error)

    assert answer["state"] == "failed"
    assert admin.get(f"/api/jobs/{job_id}").json()["errorCode"] == "codec"


@pytest.mark.parametrize(
    ("told", "becomes"),
    [
        ({"outcome": "released"}, "queued"),
        ({"outcome": "snoozed", "delay": 3600}, "retrying"),
        ({"outcome": "canceled", "reason": "not wanted"}, "canceled"),
    ],
)
def test_an_attempt_can_be_given_back(
    admin: httpx.Client, worker: httpx.Client, told: dict[str, Any], becomes: str
) -> None:
    job_id, token = start(admin, worker)

    assert tell(worker, "settle", token, **told)["status"] == "applied"

    assert state(admin, job_id) == becomes
    assert admin.get(f"/api/jobs/{job_id}").json()["retryCount"] == 0


def test_an_accepted_cancel_wins_and_the_worker_is_told(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    admin.post(f"/api/jobs/{job_id}/cancel")

    extended = tell(worker, "extend", token)
    answer = tell(worker, "settle", extended["taskToken"], outcome="succeeded", result=1)

    assert extended["cancelRequested"] is True
    assert (answer["status"], answer["state"]) == ("applied", "canceled")


def test_a_step_that_was_recorded_is_there_for_the_next_attempt(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    done = {"n": 1, "type": "step-status", "step": "voice", "status": "done", "checkpoint": [1, 2]}

    tell(worker, "record", token, records=[done])
    tell(worker, "record", token, records=[done | {"checkpoint": "repeat"}])
    tell(worker, "settle", token, outcome="released")
    [again] = claim(worker, admin.get(f"/api/jobs/{job_id}").json()["queue"])

    assert again["checkpoints"] == {"voice": [1, 2]}
    assert again["job"]["attempt"] == 2


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"outcome": "failed"}, "error"),
        ({"outcome": "snoozed"}, "delay"),
        ({"outcome": "succeeded", "delay": 3}, "delay"),
        ({"outcome": "released", "result": 3}, "result"),
        ({"outcome": "snoozed", "delay": "soon"}, "delay"),
    ],
)
def test_what_an_outcome_cannot_have_is_named(
    admin: httpx.Client, worker: httpx.Client, told: dict[str, Any], field: str
) -> None:
    job_id, token = start(admin, worker)

    answer = tell(worker, "settle", token, **told)

    assert answer["status"] == "refused"
    assert [one["field"] for one in answer["problem"]["errors"]] == [field]
    assert state(admin, job_id) == "running"


def test_one_bad_word_is_no_matter_of_the_others(admin: httpx.Client, worker: httpx.Client) -> None:
    (first, one), (second, two) = start(admin, worker), start(admin, worker)
    tasks = [
        {"taskToken": one, "outcome": "succeeded"},
        {"taskToken": one[:-2], "outcome": "succeeded"},
        {"outcome": "succeeded"},
        {"taskToken": two, "outcome": "succeeded"},
    ]

    answer = worker.post("/api/worker/settle", json={"tasks": tasks}).json()["results"]

    assert [told["status"] for told in answer] == ["applied", "refused", "refused", "applied"]
    assert {state(admin, first), state(admin, second)} == {"succeeded"}


def test_a_lifecycle_event_is_not_a_workers_to_tell(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)

    answer = tell(worker, "record", token, records=[{"n": 1, "type": "job-completed"}])

    assert answer["status"] == "refused"


# -- who does not know a task, and who is there


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(
    admin: httpx.Client, worker: httpx.Client
) -> None:
    queue = f"far-{uuid4()}"
    job = enqueue(admin, "broken", {"queue": queue}, why="x")

    assert claim(worker, queue) == []

    found = admin.get(f"/api/jobs/{job['id']}").json()
    assert (found["state"], found["retryCount"]) == ("retrying", 0)
    events = admin.get(f"/api/jobs/{job['id']}/events").json()["events"]
    assert "task 'broken' is not registered" in events[-2]["data"]["message"]


def test_a_worker_that_asks_is_shown(admin: httpx.Client, worker: httpx.Client) -> None:
    claim(worker, worker="rust-7")

    names = [one["name"] for one in admin.get("/api/workers").json()["workers"]]

    assert "rust-7" in names


# -- who may


@pytest.mark.parametrize("role", [Role.VIEWER, Role.PRODUCER, Role.OPERATOR])
def test_other_roles_take_no_jobs(far: Served, role: Role) -> None:
    with far.client(far.key(role)) as client:
        body = {"worker": "x", "queues": {QUEUE: 1}, "tasks": ["add"]}

        assert client.post("/api/worker/claim", json=body).status_code == 403


def test_a_key_for_one_owners_jobs_takes_none(far: Served) -> None:
    with far.client(far.key(Role.WORKER, owner="ann")) as client:
        body = {"worker": "x", "queues": {QUEUE: 1}, "tasks": ["add"]}

        assert client.post("/api/worker/claim", json=body).status_code == 403


def test_a_task_token_alone_speaks_for_its_attempt_and_for_nothing_else(
    far: Served, admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, token = start(admin, worker)
    other_id, other = start(admin, worker)
    with far.client(token) as alone:
        record = {"n": 1, "type": "log", "data": {"level": "info", "message": "me"}}
        assert tell(alone, "record", None, records=[record])["status"] == "applied"
        extended = tell(alone, "extend", None)
        assert extended["status"] == "applied"
        foreign = tell(alone, "settle", other, outcome="succeeded")
        assert (foreign["status"], foreign["problem"]["code"]) == ("refused", "forbidden")
        assert tell(alone, "settle", extended["taskToken"], outcome="succeeded")["state"] == (
            "succeeded"
        )
        for method, path in [
            ("POST", "/api/worker/claim"), ("GET", "/api/jobs"), ("GET", f"/api/jobs/{job_id}"),
            ("POST", f"/api/jobs/{other_id}/cancel"), ("GET", "/api/keys"), ("GET", "/metrics"),
        ]:  # fmt: skip
            assert alone.request(method, path).status_code == 401, path
    assert state(admin, other_id) == "running"


# -- whose lease is gone


def taken_back(far: Served, job_id: str) -> bool:
    """What a sweep does once a lease ran out; whether it has."""

    async def sweeps() -> bool:
        store = far.app.client().store
        rows = [row for row in await store.expired(100) if str(row.id) == job_id]
        answers = await store.apply([sweep(row, random=random.random) for row in rows])
        return any(answer.applied for answer in answers)

    return far.app.sync.call(sweeps())


def test_a_valid_signature_on_a_stale_lease_is_refused(
    far: Served, admin: httpx.Client, worker: httpx.Client
) -> None:
    job_id, old = start(admin, worker, lease=0.001)
    until(lambda: taken_back(far, job_id), "the lease ran out")
    [again] = claim(worker, admin.get(f"/api/jobs/{job_id}").json()["queue"])
    record = {"n": 9, "type": "log", "data": {"level": "info", "message": "a ghost"}}

    answers = [
        tell(worker, "settle", old, outcome="succeeded", result="ghost"),
        tell(worker, "settle", old, outcome="failed", error={"type": "E", "message": "ghost"}),
        tell(worker, "settle", old, outcome="released"),
        tell(worker, "extend", old),
        tell(worker, "record", old, records=[record]),
    ]

    assert [one["status"] for one in answers] == ["stale"] * 5
    assert tell(worker, "settle", again["taskToken"], outcome="succeeded", result="me")[
        "state"
    ] == ("succeeded")
    assert admin.get(f"/api/jobs/{job_id}").json()["result"] == "me"


async def signing(far: Served, use: Callable[[TokenSigner], Awaitable[T]]) -> T:
    store = far.app.client().store
    return await use(TokenSigner(lambda: store))


def read(far: Served, token: str) -> TaskToken | None:
    return far.app.sync.call(signing(far, lambda its: its.read(token)))


def sign(far: Served, token: TaskToken) -> str:
    return far.app.sync.call(signing(far, lambda its: its.sign(token)))


def test_a_token_ends_with_its_time(far: Served, admin: httpx.Client, worker: httpx.Client) -> None:
    job_id, token = start(admin, worker)
    held = read(far, token)
    assert held is not None
    past = sign(far, replace(held, expires_at=SystemClock().now() - SECOND))

    refused = tell(worker, "settle", past, outcome="succeeded")
    with far.client(past) as alone:
        answer = alone.post("/api/worker/extend", json={"tasks": [{}]})

    assert refused["status"] == "refused"
    assert "expired" in refused["problem"]["detail"]
    assert answer.status_code == 401
    assert state(admin, job_id) == "running"


def test_a_token_of_another_lease_is_stale_though_it_is_signed(
    far: Served, admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)
    held = read(far, token)
    assert held is not None
    for lease in (
        replace(held.lease, token=uuid4()),
        replace(held.lease, fence=held.lease.fence + 1),
    ):
        forged = sign(far, replace(held, lease=lease))
        assert tell(worker, "settle", forged, outcome="succeeded")["status"] == "stale"


def test_keys_that_sign_are_rotated_and_two_are_good(
    far: Served, admin: httpx.Client, worker: httpx.Client
) -> None:
    _, token = start(admin, worker)

    def rotate() -> None:
        far.app.sync.call(signing(far, TokenSigner.rotate))

    rotate()
    assert read(far, token) is not None
    rotate()

    assert read(far, token) is None
