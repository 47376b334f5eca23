"""Browser sessions: sign-in, the cookie, its permissions and its end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.cookies import Morsel, SimpleCookie
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import (
    STREAM,
    LiveServer,
    enqueue,
    make_app,
    read_messages,
    run_server,
    until,
)
from tests.server.test_mount import host_app, run_uvicorn

from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.auth.request_origin import client_address
from windlass.server.auth.sessions import COOKIE, SESSION, Sessions
from windlass.server.config import AuthMode, ServerConfig

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
JOB = {"task": "add", "arguments": {"a": 1}}


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    place = tmp_path_factory.mktemp("locked")
    with run_server(place, ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)) as live_server:
        yield live_server


@pytest.fixture
def key(keyed_server: LiveServer) -> str:
    return keyed_server.key(Role.PRODUCER)


def cookie_of(answer: httpx.Response) -> Morsel[str]:
    return SimpleCookie(answer.headers["set-cookie"])[COOKIE]


@contextmanager
def signed_in(server: LiveServer, key: str) -> Iterator[httpx.Client]:
    """Yield a browser on a page of the server, signed in by cookie only."""
    with server.client(headers=SAME_ORIGIN) as web:
        assert web.post("/api/session", json={"key": key}).status_code == 201
        yield web


def test_signing_in_with_a_key_sets_a_session_cookie(keyed_server: LiveServer, key: str) -> None:
    with keyed_server.client() as web:
        response = web.post("/api/session", json={"key": key})
        assert response.status_code == 201
        result = response.json()
        assert (result["roles"], result["by"], result["owner"]) == (["producer"], "session", None)
        cookie = cookie_of(response)
        assert len(cookie.value) == 43
        assert cookie.value not in response.text
        assert cookie["httponly"]
        assert cookie["samesite"].lower() == "strict"
        assert cookie["path"] == "/"
        assert int(cookie["max-age"]) == 12 * 3600
        assert not cookie["secure"]  # over plain HTTP, a secure cookie would not be sent back
        assert web.get("/api/jobs").status_code == 200  # with the cookie alone


def test_signing_in_with_a_bearer_header_sets_a_session_cookie(
    keyed_server: LiveServer, key: str
) -> None:
    with keyed_server.client(key) as web:
        response = web.post("/api/session")
        assert response.status_code == 201
        cookies = {COOKIE: cookie_of(response).value}
    with keyed_server.client(cookies=cookies) as web:
        assert web.get("/api/session").json()["by"] == "session"


def test_the_cookie_of_an_https_request_is_secure(keyed_server: LiveServer, key: str) -> None:
    with keyed_server.client(key, headers={"X-Forwarded-Proto": "https"}) as web:
        assert cookie_of(web.post("/api/session"))["secure"]


def test_the_store_keeps_only_a_hash_of_the_session(keyed_server: LiveServer, key: str) -> None:
    with signed_in(keyed_server, key) as web:
        secret = web.cookies[COOKIE]

        async def stored() -> bytes:
            entries = await keyed_server.app.client().store.list_records(SESSION)
            assert all(entry.expires_at is not None for entry in entries)
            return b"".join(entry.key.encode() + entry.value for entry in entries)

        assert secret.encode() not in keyed_server.app.sync.call(stored())


@pytest.mark.parametrize("wrong", ["", "wl_000000000000_" + "A" * 43, "x" * 200])
def test_signing_in_with_an_invalid_key_is_rejected(keyed_server: LiveServer, wrong: str) -> None:
    with keyed_server.client() as web:
        response = web.post("/api/session", json={"key": wrong})
        assert response.status_code == 401
        assert "set-cookie" not in response.headers
        assert "wl_0" not in response.text


def test_a_session_cannot_create_another_session(keyed_server: LiveServer, key: str) -> None:
    with signed_in(keyed_server, key) as web:
        response = web.post("/api/session")
        assert (response.status_code, response.headers.get("set-cookie")) == (401, None)


def test_the_session_endpoint_returns_the_caller(keyed_server: LiveServer) -> None:
    token = keyed_server.key(Role.OPERATOR, Role.VIEWER, owner="alice", team="red")
    expected = {"name": "test", "roles": ["operator", "viewer"], "owner": "alice", "team": "red",
                "permissions": ["delete", "produce", "read"]}  # fmt: skip
    with keyed_server.client(token) as by_key, signed_in(keyed_server, token) as by_session:
        for web, by in ((by_key, "key"), (by_session, "session")):
            result = web.get("/api/session").json()
            assert result == expected | {"by": by, "keyId": token.split("_")[1]}
    with keyed_server.client() as web:
        assert web.get("/api/session").status_code == 401


def test_without_keys_the_caller_is_an_anonymous_admin(server: LiveServer) -> None:
    with server.client() as web:
        result = web.get("/api/session").json()
        assert (result["name"], result["roles"], result["by"]) == ("anonymous", ["admin"], "open")


def test_signing_out_ends_the_session_and_its_streams(keyed_server: LiveServer, key: str) -> None:
    with signed_in(keyed_server, key) as web, ThreadPoolExecutor(2) as pool:
        job = enqueue(web, "add", {"hold": True}, a=1)
        secret = web.cookies[COOKIE]
        ticket = web.post("/api/tickets").json()["ticket"]

        def read(params: dict[str, str]) -> int:
            cookies = {} if params else {COOKIE: secret}
            with (
                keyed_server.client(cookies=cookies) as other,
                other.stream(
                    "GET", f"/api/jobs/{job['id']}/events", params=params, headers=STREAM
                ) as response,
            ):
                return len(read_messages(response))

        reading = [pool.submit(read, params) for params in ({}, {"ticket": ticket})]
        until(lambda: keyed_server.context.hub.open_streams == 2, "both streams are open")
        reply_response = web.delete("/api/session")
        assert reply_response.status_code == 204
        assert cookie_of(reply_response)["max-age"] == "0"
        assert [item.result(20) for item in reading] == [1, 1]
        assert COOKIE not in web.cookies
    with keyed_server.client(cookies={COOKIE: secret}, headers=SAME_ORIGIN) as web:
        reply_response = web.get("/api/jobs")
        assert (reply_response.status_code, "sign in" in reply_response.json()["detail"]) == (
            401,
            True,
        )
        assert web.delete("/api/session").status_code == 204  # repeating it is harmless


def test_a_revoked_key_ends_its_sessions_and_their_streams(keyed_server: LiveServer) -> None:
    token, key_id = keyed_server.key_and_id(Role.PRODUCER)
    with signed_in(keyed_server, token) as web, ThreadPoolExecutor(1) as pool:
        job = enqueue(web, "add", {"hold": True}, a=1)

        def read() -> int:
            with web.stream("GET", f"/api/jobs/{job['id']}/events", headers=STREAM) as response:
                return len(read_messages(response))

        reading = pool.submit(read)
        until(lambda: keyed_server.context.hub.followed_jobs, "the job is followed")

        async def revoke() -> None:
            await ApiKeys(keyed_server.app.client().store).revoke(key_id)

        keyed_server.app.sync.call(revoke())
        assert reading.result(20) == 1
        assert web.get("/api/jobs").status_code == 401


def test_a_session_has_the_permissions_of_its_key(keyed_server: LiveServer) -> None:
    with signed_in(keyed_server, keyed_server.key(Role.VIEWER, owner="alice")) as web:
        assert web.get("/api/jobs").status_code == 200
        assert web.post("/api/jobs", json=JOB).status_code == 403
        assert web.get("/api/queues").status_code == 403  # it shows jobs of all owners
        assert web.post("/api/keys", json={"name": "x", "roles": ["admin"]}).status_code == 403


# Headers that a browser sends for the page of a request, and whether the cookie is accepted.
PAGES: list[tuple[dict[str, str], bool, bool]] = [  # headers, accepted for reads, for writes
    ({"Sec-Fetch-Site": "same-origin"}, True, True),
    ({"Sec-Fetch-Site": "none"}, True, True),
    ({"Sec-Fetch-Site": "same-site"}, False, False),
    ({"Sec-Fetch-Site": "cross-site"}, False, False),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "{origin}"}, False, False),
    ({"Origin": "{origin}"}, True, True),
    ({"Origin": "https://evil.example"}, False, False),
    ({"Origin": "null"}, False, False),
    ({}, True, False),
]


@pytest.mark.parametrize(("headers", "reads", "writes"), PAGES)
def test_the_cookie_is_accepted_only_from_pages_of_the_server(
    keyed_server: LiveServer, key: str, headers: dict[str, str], *, reads: bool, writes: bool
) -> None:
    with signed_in(keyed_server, key) as web:
        secret = web.cookies[COOKIE]
    page_headers = {
        name: value.replace("{origin}", keyed_server.url) for name, value in headers.items()
    }
    with keyed_server.client(cookies={COOKIE: secret}, headers=page_headers) as web:
        assert web.get("/api/jobs").status_code == (200 if reads else 401)
        assert (web.post("/api/jobs", json=JOB).status_code == 201) is writes
        web.headers["Authorization"] = f"Bearer {key}"  # browsers never add it themselves
        assert web.get("/api/jobs").status_code == 200


def test_pages_of_other_sites_cannot_sign_in_or_out(keyed_server: LiveServer, key: str) -> None:
    with signed_in(keyed_server, key) as web:
        cross_site = {"Sec-Fetch-Site": "cross-site"}
        response = web.post("/api/session", json={"key": key}, headers=cross_site)
        assert (response.status_code, response.headers.get("set-cookie")) == (403, None)
        assert web.delete("/api/session", headers=cross_site).status_code == 403
        assert web.get("/api/session").status_code == 200


def test_a_bearer_key_overrides_the_cookie(keyed_server: LiveServer, key: str) -> None:
    with signed_in(keyed_server, key) as web:
        admin = {"Authorization": f"Bearer {keyed_server.key(Role.ADMIN)}"}
        assert web.get("/api/session", headers=admin).json()["roles"] == ["admin"]
        wrong = {"Authorization": "Bearer nonsense"}
        assert web.get("/api/session", headers=wrong).status_code == 401


def test_an_expired_session_is_rejected(
    keyed_server: LiveServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.server.auth.sessions.LIFETIME", 0.000001)
    with signed_in(keyed_server, key) as web:
        assert web.get("/api/session").status_code == 401


def test_the_cookie_of_a_mounted_server_is_limited_to_its_path(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    api = host_app()
    api.mount("/windlass", app.asgi())
    api.include_router(app.router(), prefix="/other")

    async def make() -> str:
        return (await ApiKeys(app.client().store).create("k", [Role.ADMIN]))[1]

    body = {"key": app.sync.call(make())}
    with run_uvicorn(api) as web:
        for prefix in ("/windlass", "/other"):
            response = web.post(f"{prefix}/api/session", json=body)
            assert cookie_of(response)["path"] == prefix
        assert web.get("/windlass/api/session").json()["by"] == "session"
        assert not web.get("/mine").request.headers.get("cookie")
    app.close()


def test_signing_in_is_audited(keyed_server: LiveServer) -> None:
    token, key_id = keyed_server.key_and_id(Role.ADMIN)
    with signed_in(keyed_server, token) as web:
        [note] = web.get("/api/audit", params={"limit": 1}).json()["entries"]
        assert (note["action"], note["keyId"]) == ("sign in", key_id)
        assert token not in str(note)


def test_unauthenticated_bodies_have_a_small_limit(keyed_server: LiveServer) -> None:
    with keyed_server.client() as web:
        response = web.post("/api/session", json={"key": "x" * 5000})
        assert (response.status_code, response.json()["code"]) == (413, "too_large")


def test_failed_authentications_are_rate_limited_and_valid_keys_still_work(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.KEYS, auth_failure_rate=0.001, auth_failure_burst=5)
    with run_server(tmp_path, config) as server:
        good = server.key(Role.VIEWER)
        with server.client() as web:
            for _ in range(9):  # requests without a key are not counted
                assert web.get("/api/jobs").status_code == 401
        with server.client("wl_000000000000_" + "A" * 43) as web:
            found = [web.get("/api/jobs") for _ in range(3)]
            found += [web.post("/api/session", json={"key": "x"}) for _ in range(3)]
            assert [item.status_code for item in found] == [401] * 5 + [429]
            assert 0 < int(found[-1].headers["retry-after"]) <= 1000
            assert found[-1].json()["code"] == "rate_limited"
        with server.client() as web:
            ticket = web.get("/api/events", params={"ticket": "x" * 43})
            assert ticket.status_code == 429
            stale = {"Cookie": f"{COOKIE}={'x' * 43}"}
            assert web.get("/api/jobs", headers=stale).status_code == 429
        with server.client(good) as web:  # from the same address
            assert web.get("/api/jobs").status_code == 200
            assert web.post("/api/session").status_code == 201
        with server.client("nonsense", headers={"X-Forwarded-For": "203.0.113.7"}) as web:
            assert web.get("/api/jobs").status_code == 401  # another address


def test_addresses_of_one_ipv6_network_share_a_rate_limit() -> None:
    from fastapi import Request  # noqa: PLC0415

    def name(host: str) -> str:
        return client_address(Request({"type": "http", "client": (host, 1), "headers": []}))

    assert name("2001:db8::1") == name("2001:db8::ffff:1")
    assert name("2001:db8::1") != name("2001:db8:0:1::1")
    assert name("192.0.2.1") != name("192.0.2.2")


async def test_two_sessions_of_one_key_end_separately() -> None:
    from windlass.server.auth.sessions import hash_secret  # noqa: PLC0415
    from windlass.stores.memory import MemoryStore  # noqa: PLC0415

    sessions = Sessions(MemoryStore())
    first, _ = await sessions.start("k")
    second, _ = await sessions.start("k")
    await sessions.end(hash_secret(first))
    assert await sessions.key_id(hash_secret(first)) is None
    assert await sessions.key_id(hash_secret(second)) == "k"
