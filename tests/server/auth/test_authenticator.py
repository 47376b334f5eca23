"""Authentication, permissions of roles, visibility of jobs, and rate limits."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import (
    STREAM,
    WAIT_TIMEOUT,
    LiveServer,
    enqueue,
    read_messages,
    run_server,
    until,
)
from tests.server.recording_store import RecordingStore

from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.auth.authenticator import Authenticator
from windlass.server.auth.caller import ANONYMOUS_ADMIN, Caller
from windlass.server.auth.permissions import ROLE_PERMISSIONS, Permission
from windlass.server.auth.rate_limit import RateLimiter
from windlass.server.config import LOOPBACK, AuthMode, ServerConfig
from windlass.server.routes.route_table import ROUTES, Route
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.wrapped_store import WrappedStore

# Permissions of each role, written by hand.
EXPECTED_PERMISSIONS = {
    Role.VIEWER: {Permission.PUBLIC, Permission.READ, Permission.MONITOR},
    Role.PRODUCER: {Permission.PUBLIC, Permission.READ, Permission.MONITOR, Permission.PRODUCE},
    Role.WORKER: {Permission.PUBLIC, Permission.READ, Permission.MONITOR, Permission.WORK},
    Role.OPERATOR: {
        Permission.PUBLIC,
        Permission.READ,
        Permission.MONITOR,
        Permission.PRODUCE,
        Permission.DELETE,
        Permission.OPERATE,
    },
    Role.ADMIN: set(Permission),
}


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> object:
    with run_server(
        tmp_path_factory.mktemp("locked"), ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)
    ) as live_server:
        yield live_server


def send_request(web: httpx.Client, route: Route) -> httpx.Response:
    path = route.path.replace("{id}", str(uuid4())).replace("{queue:path}", "q")
    path = path.replace("{name:path}", "none")
    if path == "/api/events":
        path += f"?after={uuid4()}:0"  # the stream of a list never ends
    body: dict[str, str] | None = {} if route.method == "POST" else None
    return web.request(route.method, path, json=body)


def test_only_public_routes_work_without_a_key(keyed_server: LiveServer) -> None:
    with keyed_server.client() as web:
        for route in ROUTES:
            response = send_request(web, route)
            expected = 401
            if route.permission is Permission.PUBLIC:
                expected = {"POST /api/session": 422, "DELETE /api/session": 204}.get(
                    f"{route.method} {route.path}", 200
                )
            assert response.status_code == expected, route.path
            if expected == 401:
                assert response.headers["www-authenticate"].startswith("Bearer")
                assert response.json()["code"] == "unauthorized"
        assert web.get("/api/openapi.json").status_code == 401
        assert web.get("/readyz").json()["problems"] is None


@pytest.mark.parametrize("role", list(Role))
def test_each_role_can_use_exactly_its_routes(keyed_server: LiveServer, role: Role) -> None:
    with keyed_server.client(keyed_server.key(role)) as web:
        for route in ROUTES:
            response = send_request(web, route)
            if route.path == "/api/session":
                continue  # see test_sessions.py
            if route.permission in EXPECTED_PERMISSIONS[role]:
                assert response.status_code not in {401, 403}, route.path
                assert response.status_code < 500, route.path
            else:
                assert response.status_code == 403, route.path


def test_every_permission_belongs_to_a_role() -> None:
    assert {
        permission for permissions in ROLE_PERMISSIONS.values() for permission in permissions
    } | {Permission.PUBLIC} == set(Permission)


@pytest.mark.parametrize("role", list(Role))
def test_a_key_of_one_owner_cannot_use_routes_about_all_jobs(
    keyed_server: LiveServer, role: Role
) -> None:
    with keyed_server.client(keyed_server.key(role, owner="alice")) as web:
        for route in ROUTES:
            if route.permission in {
                Permission.MONITOR,
                Permission.WORK,
                Permission.OPERATE,
                Permission.ADMIN,
            }:
                assert send_request(web, route).status_code == 403, route.path


def test_a_job_of_another_owner_looks_like_a_missing_job(keyed_server: LiveServer) -> None:
    alice, bob = (
        keyed_server.client(keyed_server.key(Role.OPERATOR, Role.PRODUCER, owner=name))
        for name in ("alice", "bob")
    )
    with alice, bob:
        job = enqueue(alice, "add", a=1)
        assert job["owner"] == "alice"
        place = f"/api/jobs/{job['id']}"
        assert alice.get(place).status_code == 200
        for path in ("", "/attempts", "/why", "/events"):
            response = bob.get(place + path)
            unknown = bob.get(f"/api/jobs/{uuid4()}{path}")
            assert response.status_code == unknown.status_code == 404
            assert response.json()["detail"].replace(job["id"], "") == unknown.json()[
                "detail"
            ].replace(unknown.url.path.split("/")[3], "")
        for verb in ("submit", "cancel", "retry", "resume"):
            assert bob.post(f"{place}/{verb}").status_code == 404
        assert bob.delete(place).status_code == 404
        assert bob.get(place + "/events", headers=STREAM).status_code == 404
        vector = {"after": f"{job['id']}:0"}
        assert bob.get("/api/events", params=vector, headers=STREAM).status_code == 404
        assert bob.get("/api/jobs").json()["jobs"] == []
        assert bob.get("/api/jobs", params={"owner": "alice"}).status_code == 422
        depends = {"task": "add", "arguments": {"a": 1}, "dependsOn": [job["id"]]}
        assert bob.post("/api/jobs", json=depends).status_code == 404
        assert alice.get(place).json()["state"] == "queued"


def test_a_key_of_an_owner_enqueues_only_for_that_owner(keyed_server: LiveServer) -> None:
    with keyed_server.client(keyed_server.key(Role.PRODUCER, owner="carol", team="blue")) as web:
        job = enqueue(web, "add", {"owner": "carol"}, a=1)
        assert (job["owner"], job["team"]) == ("carol", "blue")
        for field in ("owner", "team"):
            body = {"task": "add", "arguments": {"a": 1}, field: "other"}
            response = web.post("/api/jobs", json=body)
            assert response.status_code == 422
            assert response.json()["errors"][0]["field"] == field


def test_a_key_of_a_team_sees_only_jobs_of_that_team(keyed_server: LiveServer) -> None:
    red, other = (
        keyed_server.client(keyed_server.key(Role.PRODUCER, team=name)) for name in ("red", "other")
    )
    with red, other:
        job = enqueue(red, "add", a=1)
        assert red.get(f"/api/jobs/{job['id']}").status_code == 200
        assert other.get(f"/api/jobs/{job['id']}").status_code == 404
        assert [item["id"] for item in red.get("/api/jobs").json()["jobs"]] == [job["id"]]


def test_a_job_of_another_team_of_the_owner_is_neither_returned_nor_changed(
    keyed_server: LiveServer,
) -> None:
    blue, red = (
        keyed_server.client(keyed_server.key(Role.PRODUCER, owner="gina", team=name))
        for name in ("blue", "red")
    )
    with blue, red:
        options = {"requestId": "r", "uniqueKey": "u", "delay": 60}
        job = enqueue(blue, "add", options, a=1)
        for more in ({"requestId": "r"}, {"uniqueKey": "u"}, {"uniqueKey": "u", "debounce": True}):
            body = {"task": "add", "arguments": {"a": 1}, **more}
            response = red.post("/api/jobs", json=body)
            assert (response.status_code, job["id"] in response.text) == (409, False), more
            [result] = red.post("/api/jobs/batch", json={"jobs": [body]}).json()["results"]
            assert (result["job"], result["problem"]["code"]) == (None, "conflict"), more
        depends = {"task": "add", "arguments": {"a": 1}, "dependsOn": [job["id"]]}
        assert red.post("/api/jobs", json=depends).status_code == 404
        assert blue.get(f"/api/jobs/{job['id']}").json()["state"] == "created"
        assert blue.post("/api/jobs", json=depends).status_code == 201


def test_two_owners_may_use_the_same_idempotency_key(keyed_server: LiveServer) -> None:
    found = []
    for name in ("dora", "emil"):
        with keyed_server.client(keyed_server.key(Role.PRODUCER, owner=name)) as web:
            body = {"task": "add", "arguments": {"a": len(name)}, "requestId": "same"}
            response = web.post("/api/jobs", json=body)
            assert response.status_code == 201
            found.append(response.json()["id"])
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "header",
    ["Bearer nonsense", "Bearer wl_000000000000_" + "A" * 43, "Basic dTpw", "Bearer", ""],
)
def test_an_invalid_key_is_rejected(keyed_server: LiveServer, header: str) -> None:
    with keyed_server.client(headers={"Authorization": header}) as web:
        assert web.get("/api/jobs").status_code == 401


def test_a_valid_key_id_with_a_wrong_secret_is_rejected(keyed_server: LiveServer) -> None:
    key = keyed_server.key(Role.ADMIN)
    with keyed_server.client(key[:-1] + ("A" if key[-1] != "A" else "B")) as web:
        assert web.get("/api/jobs").status_code == 401


def test_the_store_does_not_keep_the_secret_of_a_key(keyed_server: LiveServer) -> None:
    key = keyed_server.key(Role.ADMIN)
    secret = key.split("_", 2)[2]

    async def stored() -> bytes:
        entries = await keyed_server.app.client().store.list_records("api-key")
        return b"".join(entry.value for entry in entries)

    assert secret.encode() not in keyed_server.app.sync.call(stored())


def revoke(server: LiveServer, key_id: str) -> None:
    async def work() -> None:
        await ApiKeys(server.app.client().store).revoke(key_id)

    server.app.sync.call(work())


def test_a_revoked_key_is_rejected_and_its_open_stream_ends(keyed_server: LiveServer) -> None:
    token, key_id = keyed_server.key_and_id(Role.PRODUCER)
    with keyed_server.client(token) as web, ThreadPoolExecutor(1) as pool:
        job = enqueue(web, "add", {"hold": True}, a=1)

        def read() -> int:
            with web.stream("GET", f"/api/jobs/{job['id']}/events", headers=STREAM) as response:
                return len(read_messages(response))

        reading = pool.submit(read)
        until(lambda: keyed_server.context.hub.followed_jobs, "the job is followed")
        revoke(keyed_server, key_id)
        assert reading.result() == 1
        reply_response = web.get("/api/jobs")
        assert (reply_response.status_code, "revoked" in reply_response.json()["detail"]) == (
            401,
            True,
        )


def test_a_revocation_takes_effect_within_five_seconds() -> None:
    from windlass.server.streaming import access_recheck  # noqa: PLC0415

    assert ServerConfig().key_cache_ttl + access_recheck.INTERVAL < 5


def test_forbidden_requests_count_toward_the_rate_limit(tmp_path: Path) -> None:
    with (
        run_server(tmp_path, ServerConfig(rate=0.001, burst=2)) as server,
        server.client(server.key(Role.VIEWER)) as web,
    ):
        assert [web.get("/api/keys").status_code for _ in range(3)] == [403, 403, 429]


def test_an_expired_key_is_rejected(keyed_server: LiveServer) -> None:
    async def make() -> str:
        keys = ApiKeys(keyed_server.app.client().store)
        return (await keys.create("brief", [Role.VIEWER], expires_in=0.000001))[1]

    with keyed_server.client(keyed_server.app.sync.call(make())) as web:
        response = web.get("/api/jobs")
        assert (response.status_code, "expired" in response.json()["detail"]) == (401, True)


def test_a_local_server_requires_keys_permanently_after_the_first_key(tmp_path: Path) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.LOCAL, key_cache_ttl=0.05)) as server:
        with server.client() as web:
            assert web.get("/api/jobs").status_code == 200
            _, key_id = server.key_and_id(Role.ADMIN)
            until(lambda: web.get("/api/jobs").status_code == 401, "keys are required")
            revoke(server, key_id)
            assert web.get("/api/jobs").status_code == 401
        with run_server(tmp_path) as again, again.client() as web:
            assert web.get("/api/jobs").status_code == 401


def test_a_foreign_host_name_is_rejected(
    tmp_path: Path,
) -> None:
    """A page whose host name resolves to 127.0.0.1 must not act for its visitor (DNS rebinding)."""
    with run_server(tmp_path) as server, server.client() as web:
        for host, status in (("evil.example", 421), ("localhost:80", 200), ("[::1]:9", 200)):
            assert web.get("/api/jobs", headers={"Host": host}).status_code == status, host
    config = ServerConfig(auth=AuthMode.OPEN, hosts=LOOPBACK | {"jobs.example"})
    with run_server(tmp_path, config) as server, server.client() as web:
        for host, status in (("evil.example", 421), ("jobs.example", 200), ("10.0.0.7:80", 200)):
            assert web.get("/api/jobs", headers={"Host": host}).status_code == status, host
    config = ServerConfig(auth=AuthMode.KEYS, hosts=frozenset({"jobs.example"}))
    with run_server(tmp_path, config) as server, server.client(server.key(Role.VIEWER)) as web:
        for host, status in (("evil.example", 421), ("jobs.example", 200), ("127.0.0.1", 200)):
            assert web.get("/api/jobs", headers={"Host": host}).status_code == status, host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 201),
    ],
)
def test_pages_of_other_sites_cannot_change_anything(
    server: LiveServer, headers: dict[str, str], status: int
) -> None:
    with server.client() as web:
        body = {"task": "add", "arguments": {"a": 1}}
        assert web.post("/api/jobs", json=body, headers=headers).status_code == status
        own = {"Origin": server.url}
        assert web.post("/api/jobs", json=body, headers=own).status_code == 201


def test_every_response_has_the_security_headers(keyed_server: LiveServer) -> None:
    with keyed_server.client(keyed_server.key(Role.ADMIN)) as web:
        for path in ("/api/jobs", "/nothing", "/healthz", f"/api/jobs/{uuid4()}"):
            headers = web.get(path).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "server" not in headers
    with keyed_server.client() as web:
        assert web.get("/api/jobs").headers["x-frame-options"] == "DENY"


def test_actions_are_audited(keyed_server: LiveServer) -> None:
    token, key_id = keyed_server.key_and_id(Role.ADMIN)
    with keyed_server.client(token) as web:
        job = enqueue(web, "add", a=1)
        web.post(f"/api/jobs/{job['id']}/cancel")
        web.delete(f"/api/jobs/{job['id']}")
        web.post("/api/queues/q/pause")
        web.post("/api/queues/q/resume")
        web.post(f"/api/jobs/{uuid4()}/cancel")  # a missing job is not audited
        notes = web.get("/api/audit", params={"limit": 4}).json()
        assert [
            (entry["action"], entry["target"], entry["keyId"]) for entry in notes["entries"]
        ] == [
            ("resume queue", "q", key_id),
            ("pause queue", "q", key_id),
            ("delete", job["id"], key_id),
            ("cancel", job["id"], key_id),
        ]
        older = web.get("/api/audit", params={"limit": 4, "after": notes["cursor"]}).json()
        assert not any(entry["keyId"] == key_id for entry in older["entries"])


def test_a_forwarded_request_does_not_count_as_local(tmp_path: Path) -> None:
    """The address of a local proxy does not make its clients local."""
    with run_server(tmp_path) as server, server.client() as web:
        assert web.get("/api/jobs").status_code == 200
        elsewhere = {"X-Forwarded-For": "203.0.113.7"}
        assert web.get("/api/jobs", headers=elsewhere).status_code == 401


PROXY_HEADERS = [
    "Via: 1.1 squid", "Forwarded: for=127.0.0.1", "X-Real-IP: 127.0.0.1", "X-Forwarded-For: ::1",
    "X-Forwarded-Host: localhost", "X-Forwarded-Proto: https", "CF-Connecting-IP: 127.0.0.1",
]  # fmt: skip


def test_a_proxied_request_does_not_count_as_local(tmp_path: Path) -> None:
    """Even if the headers name a local address: a client can forge them."""
    rest = "Host: localhost\r\nConnection: close\r\n"
    heads = [
        (f"HTTP/1.1\r\n{header}\r\n{rest}", header.partition(":")[0].lower())
        for header in PROXY_HEADERS
    ]
    heads.append((f"HTTP/1.0\r\n{rest}", "HTTP/1.0"))  # nginx uses it, and adds no header
    with run_server(tmp_path) as server:
        assert send_raw(server, f"GET /api/jobs HTTP/1.1\r\n{rest}\r\n")[0] == 200
        for head, header in heads:
            status, body = send_raw(server, f"GET /api/jobs {head}\r\n")
            result = json.loads(body)["detail"]
            assert (status, header in result, "windlass keys create" in result) == (401, True, True)
            assert send_raw(server, f"GET /healthz {head}\r\n")[0] == 200
        key = f"Authorization: Bearer {server.key(Role.VIEWER)}\r\n"
        for head, _ in heads:
            assert send_raw(server, f"GET /api/jobs {head}{key}\r\n")[0] == 200


def send_raw(server: LiveServer, text: str) -> tuple[int, bytes]:
    """Send a raw request; return the status and the body."""
    place = httpx.URL(server.url)
    with socket.create_connection((place.host, place.port), WAIT_TIMEOUT) as sock:
        sock.sendall(text.encode())
        found = b""
        while piece := sock.recv(65536):
            found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_a_rate_limited_request_gets_retry_after(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.KEYS, rate=0.001, burst=3)
    with run_server(tmp_path, config) as server:
        with server.client(server.key(Role.VIEWER)) as web:
            found = [web.get("/api/jobs") for _ in range(4)]
            assert [item.status_code for item in found] == [200, 200, 200, 429]
            assert 0 < int(found[-1].headers["retry-after"]) <= 1000
            assert found[-1].json()["code"] == "rate_limited"
        key = server.key(Role.VIEWER)  # each key has its own bucket
        with server.client() as web:
            found = [web.post("/api/session", json={"key": key}) for _ in range(4)]
            assert [item.status_code for item in found] == [201, 201, 201, 429]


def test_the_rate_limiter_keeps_the_rate_and_allows_bursts() -> None:
    now = 0.0
    limiter = RateLimiter(rate=2, burst=4, clock=lambda: now)
    assert [limiter.take("a") for _ in range(4)] == [0, 0, 0, 0]
    assert limiter.take("a") == 0.5
    assert limiter.take("b") == 0
    now = 0.5
    assert limiter.take("a") == 0
    assert limiter.take("a") == 0.5
    now = 1000.0
    assert [bool(limiter.take("a")) for _ in range(5)] == [False] * 4 + [True]


class ReadCounter(WrappedStore):
    """Counts `get_records` calls, each of which yields to the event loop once."""

    reads = 0

    def wrap(self, store: Store) -> ReadCounter:
        return ReadCounter(store)

    async def around(self, verb: str, call: Any) -> Any:
        if verb == "get_records":
            self.reads += 1
            await asyncio.sleep(0)
        return await call()


async def test_a_thousand_streams_of_one_key_read_the_key_once() -> None:
    store = ReadCounter(MemoryStore())
    key, _ = await ApiKeys(store).create("k", [Role.VIEWER])
    auth = Authenticator(lambda: store, ServerConfig(key_cache_ttl=60.0))
    caller = Caller(name="k", key_id=key.id, roles=key.roles)
    assert await auth.still_authorized(caller)
    await ApiKeys(store).revoke(key.id)
    auth._keys._entries[key.id] = (-math.inf, key)  # the cache entry is expired
    before = store.reads
    await asyncio.gather(*(auth.still_authorized(caller) for _ in range(1000)))
    assert store.reads == before + 1
    assert not await auth.still_authorized(caller)


async def test_many_streams_share_one_access_recheck() -> None:
    """Otherwise all streams would read the store at once, and block other requests."""
    store = RecordingStore(MemoryStore())
    auth = Authenticator(lambda: store, ServerConfig(auth=AuthMode.LOCAL, key_cache_ttl=0.2))
    assert await auth.still_authorized(ANONYMOUS_ADMIN)
    await asyncio.sleep(0.2)  # until the cache entry expires
    store.calls.clear()
    store.held = {"list_records"}
    store.free.clear()
    asking = [asyncio.create_task(auth.still_authorized(ANONYMOUS_ADMIN)) for _ in range(50)]
    await asyncio.sleep(0.05)
    store.free.set()
    assert all(await asyncio.gather(*asking))
    assert store.calls["list_records"] < 50 / 5
