"""Two servers on one PostgreSQL database return the same events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from tests.server.conftest import (
    STREAM,
    LiveServer,
    enqueue,
    make_app,
    read_messages,
    run_server,
    until,
    wait_for,
)
from tests.stores.postgres.server import database_url, execute, migrate, shared_server


@pytest.fixture
def database() -> Iterator[str]:
    postgres, name = shared_server(), f"served_{uuid4().hex[:8]}"
    asyncio.run(execute(postgres, f"CREATE DATABASE {name}"))
    url = database_url(postgres, name)
    asyncio.run(migrate(url))
    yield url
    asyncio.run(execute(postgres, f"DROP DATABASE {name} WITH (FORCE)"))


def test_clients_can_switch_between_two_servers_on_one_database(
    database: str, tmp_path: Path
) -> None:
    """One server runs the worker; every client switches servers in the middle of its stream."""
    gate = tmp_path / "gate"
    with (
        run_server(tmp_path, app=make_app(tmp_path, database), worker=True) as one,
        run_server(tmp_path, app=make_app(tmp_path, database)) as two,
        one.client() as first,
        two.client() as second,
    ):
        jobs = [enqueue(first, "film", gate=str(gate), lines=20)["id"] for _ in range(3)]

        def read(
            server: LiveServer, job: str, last: str | None = None, limit: int = 10**6
        ) -> list[str]:
            headers = STREAM | ({} if last is None else {"Last-Event-ID": last})
            found: list[str] = []
            with (
                server.client() as web,
                web.stream("GET", f"/api/jobs/{job}/events", headers=headers) as response,
            ):
                for line in response.iter_lines():
                    if line.startswith("id: "):
                        found.append(line.removeprefix("id: "))
                        if len(found) == limit:
                            break
            return found

        def follow(job: str, servers: tuple[LiveServer, LiveServer]) -> list[str]:
            first_events = read(servers[0], job, limit=7)
            return first_events + read(servers[1], job, first_events[-1])

        with ThreadPoolExecutor(6) as pool:
            reading = {
                (job, number): pool.submit(follow, job, servers)
                for job in jobs
                for number, servers in enumerate([(one, two), (two, one)])
            }
            until(
                lambda: one.context.hub.open_streams == two.context.hub.open_streams == 3,
                "all clients have switched",
            )
            gate.touch()
            found = {client: work.result() for client, work in reading.items()}
        for job in jobs:
            last = wait_for(second, job, "succeeded")["seq"]
            with second.stream("GET", f"/api/jobs/{job}/events", headers=STREAM) as response:
                log = [event.id for event in read_messages(response)]
            assert len(log) == last
            assert found[job, 0] == found[job, 1] == log
