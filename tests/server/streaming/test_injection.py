"""Text of jobs, tasks and callers cannot break out of its SSE message or HTTP header."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import STREAM, WAIT_TIMEOUT, LiveServer, enqueue

INJECTIONS = [
    "a\n\nevent: job-completed\ndata: {}\n\n",
    "a\r\ndata: x",
    "a\rid: 1-99",
    "a\u2028data: x\u2029event: y\u0085z",
    "a\x0b\x0c\x1c\x1d\x1e\x1fb",
    ":comment\nretry: 1",
    "\ufeffdata: x",
]


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def run_job_with_text(web: httpx.Client, text: str) -> str:
    """Run a job with this text in all its fields and events; return its id."""
    queue = str(uuid4())
    options = {"queue": queue, "tags": [text], "headers": {"x": text}, "uniqueKey": text}
    job = enqueue(web, "add", options, a=1)
    claim = {"worker": text, "queues": {queue: 1}, "tasks": ["add"]}
    [claimed] = web.post("/api/worker/claim", json=claim).json()["jobs"]
    token = {"taskToken": claimed["taskToken"]}
    records = [
        {"n": 1, "type": "log", "data": {"message": text, text: text}},
        {"n": 2, "type": "artifact", "data": {"name": text, "uri": text}},
        {"n": 3, "type": "step-progress", "percent": 5, "stage": "s", "data": {"message": text}},
    ]
    web.post("/api/worker/record", json={"tasks": [token | {"records": records}]})
    web.post(f"/api/jobs/{job['id']}/cancel", json={"reason": text})
    end = token | {"outcome": "canceled", "reason": text}
    responses = web.post("/api/worker/settle", json={"tasks": [end]}).json()["results"]
    assert [response["status"] for response in responses] == ["applied"]
    return str(job["id"])


def parse_messages(body: bytes) -> list[dict[str, str]]:
    """Parse messages by the standard, and check clients that split lines like Python."""
    text = body.decode()
    assert "\0" not in text
    assert text.splitlines() == text.split("\n")[:-1]
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        assert len(fields) == len(lines)
        assert fields.keys() <= {"id", "event", "data", "retry"}
        if "data" in fields:
            json.loads(fields["data"])
            found.append(fields)
    return found


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_of_a_job_cannot_start_another_message(web: httpx.Client, text: str) -> None:
    job = run_job_with_text(web, text)
    page = web.get(f"/api/jobs/{job}/events").json()["events"]
    alone = parse_messages(web.get(f"/api/jobs/{job}/events", headers=STREAM).content)
    assert [item["id"] for item in alone] == [event["id"] for event in page]
    assert [json.loads(item["data"]) for item in alone] == [event["data"] for event in page]
    [log] = [item for item in alone if item["event"] == "log"]
    assert json.loads(log["data"])["message"] == text
    among = parse_messages(
        web.get("/api/events", params={"after": f"{job}:0"}, headers=STREAM).content
    )
    assert [json.loads(item["data"])["id"] for item in among] == [event["id"] for event in page]


def test_a_snapshot_of_a_list_is_one_message(web: httpx.Client) -> None:
    for text in INJECTIONS:
        run_job_with_text(web, text)
    with web.stream("GET", "/api/events", params={"limit": 100}, headers=STREAM) as response:
        body = b""
        for piece in response.iter_bytes():
            body += piece
            if body.count(b"event: snapshot") >= len(INJECTIONS) and body.endswith(b"\n\n"):
                break
    assert {item["event"] for item in parse_messages(body)} == {"snapshot"}


def test_nul_in_a_name_is_rejected(web: httpx.Client) -> None:
    for more in ({"tags": ["a\0"]}, {"queue": "a\0"}, {"uniqueKey": "\0"}, {"owner": "\0"}):
        body = {"task": "add", "arguments": {"a": 1}, **more}
        response = web.post("/api/jobs", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_argument"), more


@pytest.mark.parametrize(
    "head",
    [
        "GET /api/jobs/%0d%0aX-Evil:%201 HTTP/1.1\r\nHost: localhost\r\n",
        "GET /%0d%0aX-Evil:%201%0d%0a%0d%0abody HTTP/1.1\r\nHost: localhost\r\n",
        "GET /api/jobs?cursor=%0d%0aX-Evil:%201 HTTP/1.1\r\nHost: localhost\r\n",
        "GET /api/jobs HTTP/1.1\r\nHost: localhost%0d%0aX-Evil: 1\r\n",
        "GET /api/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %0d%0aX-Evil: 1\r\n",
        "POST /%0d%0aX-Evil:1/api/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n",
        "DELETE /api/session HTTP/1.1\r\nHost: a\r\nCookie: windlass_session=%0d%0aX-Evil: 1\r\n",
    ],
)
def test_request_data_cannot_inject_a_response_header(server: LiveServer, head: str) -> None:
    place = httpx.URL(server.url)
    with socket.create_connection((place.host, place.port), WAIT_TIMEOUT) as sock:
        sock.sendall(head.encode() + b"Connection: close\r\n\r\n")
        response = b""
        while piece := sock.recv(65536):
            response += piece
    headers = response.partition(b"\r\n\r\n")[0].lower()
    assert headers.startswith(b"http/1.1 ")
    assert b"x-evil" not in headers


def test_a_request_id_cannot_inject_into_the_location_header(web: httpx.Client) -> None:
    body = {"task": "add", "arguments": {"a": 1}, "requestId": "r\r\nX-Evil: 1"}
    response = web.post("/api/jobs", json=body)
    assert response.status_code in {201, 422}
    assert "x-evil" not in response.headers
