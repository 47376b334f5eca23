"""Keys and tickets over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.server.conftest import STREAM, LiveServer, enqueue, read_messages, run_server, until

from windlass.server.auth.api_keys import Role
from windlass.server.auth.tickets import LIFETIME
from windlass.server.config import AuthMode, ServerConfig


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)
    with run_server(tmp_path_factory.mktemp("entry"), config) as live_server:
        yield live_server


def test_an_admin_creates_lists_and_revokes_keys(keyed_server: LiveServer) -> None:
    with keyed_server.client(keyed_server.key(Role.ADMIN)) as web:
        body = {"name": "ci", "roles": ["producer"], "owner": "o", "expiresIn": "90d"}
        created = web.post("/api/keys", json=body)
        assert created.status_code == 201
        key = created.json()
        with keyed_server.client(key["key"]) as other_client:
            assert enqueue(other_client, "add", a=1)["owner"] == "o"
            listed = web.get("/api/keys")
            assert key["id"] in [item["id"] for item in listed.json()["keys"]]
            assert key["key"].split("_", 2)[2] not in listed.text
            assert "hash" not in listed.text
            revoked = web.delete(f"/api/keys/{key['id']}")
            assert revoked.json()["revokedAt"]
            until(lambda: other_client.get("/api/jobs").status_code == 401, "it is refused")
        notes = web.get("/api/audit").json()["entries"]
        assert ("revoke key", key["id"]) in [(note["action"], note["target"]) for note in notes]
        assert web.delete("/api/keys/000000000000").status_code == 404


@pytest.mark.parametrize(
    "body",
    [{"name": "x", "roles": ["viewer"], "expiresIn": 1e300},
     {"name": "x"}, {"name": "x", "roles": []}, {"name": "x", "roles": ["king"]},
     {"name": "x" * 200, "roles": ["viewer"]},
     {"name": "x", "roles": ["viewer"], "expiresIn": "?"}],
    ids=str,
)  # fmt: skip
def test_an_invalid_key_request_is_rejected(
    keyed_server: LiveServer, body: dict[str, object]
) -> None:
    with keyed_server.client(keyed_server.key(Role.ADMIN)) as web:
        assert web.post("/api/keys", json=body).status_code == 422


def test_a_ticket_opens_one_stream_only(keyed_server: LiveServer) -> None:
    with (
        keyed_server.client(keyed_server.key(Role.PRODUCER, owner="a")) as web,
        keyed_server.client() as browser,
    ):
        job = enqueue(web, "add", a=1)
        web.post(f"/api/jobs/{job['id']}/cancel")
        created = web.post("/api/tickets")
        assert created.status_code == 201
        ticket = {"ticket": created.json()["ticket"]}
        assert browser.get("/api/jobs", params=ticket).status_code in {401, 422}
        assert browser.post("/api/tickets", params=ticket).status_code == 401
        place = f"/api/jobs/{job['id']}/events"
        with browser.stream("GET", place, headers=STREAM, params=ticket) as response:
            assert [message.seq for message in read_messages(response)] == [1, 2, 3]
        again = browser.get(place, headers=STREAM, params=ticket)
        assert (again.status_code, "ticket" in again.json()["detail"]) == (401, True)
        for wrong in ("", "x", "y" * 1000):
            reply_response = browser.get(place, headers=STREAM, params={"ticket": wrong})
            assert reply_response.status_code == 401


def test_a_ticket_has_the_scope_of_its_key_and_ends_with_it(keyed_server: LiveServer) -> None:
    token, key_id = keyed_server.key_and_id(Role.PRODUCER, owner="b")
    with (
        keyed_server.client(token) as web,
        keyed_server.client(keyed_server.key(Role.PRODUCER, owner="c")) as other,
        keyed_server.client(keyed_server.key(Role.ADMIN)) as admin,
        keyed_server.client() as browser,
    ):
        job = enqueue(other, "add", a=1)
        ticket = web.post("/api/tickets").json()
        foreign = browser.get(f"/api/jobs/{job['id']}/events", params={"ticket": ticket["ticket"]})
        assert foreign.status_code == 404
        late = web.post("/api/tickets").json()["ticket"]
        admin.delete(f"/api/keys/{key_id}")
        until(lambda: web.get("/api/jobs").status_code == 401, "the key is refused")
        response = browser.get(f"/api/jobs/{job['id']}/events", params={"ticket": late})
        assert response.status_code == 401


def test_one_of_many_concurrent_uses_of_a_ticket_is_accepted(keyed_server: LiveServer) -> None:
    with keyed_server.client(keyed_server.key(Role.PRODUCER)) as web:
        job = enqueue(web, "add", a=1)
        for _ in range(5):
            ticket = web.post("/api/tickets").json()["ticket"]
            with keyed_server.client() as browser, ThreadPoolExecutor(8) as pool:

                def bring(_: int, browser: httpx.Client = browser, ticket: str = ticket) -> int:
                    place = f"/api/jobs/{job['id']}/events"
                    return browser.get(place, params={"ticket": ticket}).status_code

                assert sorted(pool.map(bring, range(8))) == [200] + [401] * 7


def test_a_ticket_is_valid_for_at_most_a_minute() -> None:
    assert LIFETIME <= 60


def test_a_server_without_keys_issues_no_tickets(server: LiveServer) -> None:
    with server.client() as web:
        assert web.post("/api/tickets").status_code == 409
