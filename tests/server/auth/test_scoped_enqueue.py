"""Enqueue rules for keys of an owner or team, in one table for the API and the store protocol.

The table is written by hand: the result of an enqueue by a key of owner gina and team red, by a key
of owner gina, and by a key of team red.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from pydantic.alias_generators import to_camel
from tests.server.conftest import WAIT_TIMEOUT, LiveServer, make_app, run_server
from tests.server.remote.test_store_access import make_key

from windlass.client import retry_request
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.options import EnqueueOptions
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.stores.http import HttpConfig, HttpStore

KEYS = [("gina", "red"), ("gina", None), (None, "red")]
# options of the job, besides its owner gina       gina/red   gina/*     */red
TABLE = """
nothing                                            created    created    created
team red                                           created    created    created
team blue                                          invalid    created    invalid
owner hans                                         invalid    invalid    created
depends_on gina/red                                created    created    created
depends_on gina/blue                               unknown    created    unknown
depends_on hans/red                                unknown    unknown    unknown
depends_on missing                                 unknown    unknown    unknown
request_id gina/red                                duplicate  duplicate  duplicate
request_id gina/blue                               conflict   duplicate  conflict
request_id hans/red                                created    created    created
unique_key gina/red                                duplicate  duplicate  duplicate
unique_key gina/blue                               conflict   duplicate  conflict
unique_key hans/red                                created    created    created
debounce gina/red                                  created    created    created
debounce gina/blue                                 conflict   created    conflict
debounce hans/red                                  created    created    created
id gina/blue                                       conflict   created    conflict
id hans/red                                        conflict   conflict   conflict
retry gina/red                                     created    created    created
retry gina/blue                                    unknown    created    unknown
retry hans/red                                     unknown    unknown    created
retry missing                                      unknown    unknown    unknown
retry_of_taken_key gina/red                        conflict   duplicate  conflict
"""
# Options that name the referenced job by its id.
REFERENCED_BY_ID = {"id", "depends_on", "retry", "retry_of_taken_key"}
ROWS = [(*line[:50].split(), *line[50:].split()) for line in TABLE.strip().splitlines()]
ROWS = [row if len(row) == 5 else (row[0], "", *row[1:]) for row in ROWS]


@dataclass
class ReferencedJobs:
    """The referenced job, and a second job with the same unique key."""

    job: JobRow | None
    conflicting: JobRow | None = None

    @property
    def id(self) -> UUID:
        return UUID(int=7) if self.job is None else self.job.id


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    app = make_app(tmp_path_factory.mktemp("own"), "memory:")
    with run_server(Path(), ServerConfig(auth=AuthMode.KEYS, rate=0), app=app) as live_server:
        yield live_server


def run_on_server(server: LiveServer, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, server.loop).result(WAIT_TIMEOUT)


def job(server: LiveServer, **options: Any) -> NewJob:
    spec = server.app.tasks.get("add")
    assert spec is not None
    return server.app.prepare(spec, (1,), {}, EnqueueOptions(**options))


def create_referenced(server: LiveServer, verb: str, tenant: str) -> ReferencedJobs:
    """Create the jobs of a case; a job to retry is canceled first."""
    if tenant in {"", "missing"} or verb in {"team", "owner"}:
        return ReferencedJobs(None)
    owner, team = tenant.split("/")
    names = {"owner": owner, "request_id": f"r-{uuid4()}", "unique_key": f"u-{uuid4()}"}
    new = job(server, team=team, delay=60, **names)

    async def put() -> ReferencedJobs:
        client = server.app.client()
        await client.enqueue([new])
        if verb.startswith("retry"):
            await client.cancel(new.id)
        if verb == "retry_of_taken_key":
            other = job(server, owner=owner, team="blue", unique_key=names["unique_key"], delay=60)
            await client.enqueue([other])
            return ReferencedJobs(await client.get(new.id), await client.get(other.id))
        return ReferencedJobs(await client.get(new.id))

    referenced: ReferencedJobs = run_on_server(server, put())
    return referenced


def job_options(verb: str, value: str, referenced: ReferencedJobs) -> dict[str, Any]:
    """Return the options of the new job, with their Python names."""
    row = referenced.job
    match verb:
        case "team" | "owner":
            return {verb: value}
        case "depends_on":
            return {"depends_on": [referenced.id]}
        case "id":
            return {"id": referenced.id}
        case "request_id" | "unique_key":
            return {verb: getattr(row, verb)}
        case "debounce":
            return {"unique_key": None if row is None else row.unique_key, "debounce": True}
    return {}


class ApiClient:
    """The documented API."""

    def __init__(self, server: LiveServer, key: str, owner: str | None) -> None:
        self._web = server.client(key)

    def enqueue(self, verb: str, value: str, referenced: ReferencedJobs) -> tuple[str, str]:
        """Enqueue or retry; return the result, and the whole response."""
        if verb.startswith("retry"):
            response = self._web.post(f"/api/jobs/{referenced.id}/retry")
        else:
            result = {"owner": "gina"} | job_options(verb, value, referenced)
            body = {to_camel(name): _plain(one) for name, one in result.items()}
            response = self._web.post(
                "/api/jobs", json={"task": "add", "arguments": {"a": 1}} | body
            )
        return result_of(response), response.text

    def close(self) -> None:
        self._web.close()


def result_of(answer: httpx.Response) -> str:
    if answer.status_code in {200, 201}:
        return "duplicate" if answer.json()["duplicate"] else "created"
    return {404: "unknown", 409: "conflict", 422: "invalid"}[answer.status_code]


class StoreProtocolClient:
    """The store protocol."""

    def __init__(self, server: LiveServer, key: str, owner: str | None) -> None:
        self._served = server
        self._owner = owner
        self._runner = asyncio.Runner()
        self._store = HttpStore(HttpConfig(url=server.url, key=key))

    def enqueue(self, verb: str, value: str, referenced: ReferencedJobs) -> tuple[str, str]:
        if verb.startswith("retry"):
            row = referenced.job
            new = (
                replace(job(self._served), retry_of=referenced.id)
                if row is None
                else retry_request(row)
            )
            # Like a client that does not know the owner.
            new = replace(new, team=None, owner=new.owner if self._owner is None else "")
        else:
            new = job(self._served, **{"owner": "gina"} | job_options(verb, value, referenced))
        [response] = self._runner.run(self._store.enqueue([new]))
        details = f"{response.error} {response.existing}"
        if response.status is EnqueueStatus.REFUSED:
            assert response.error is not None
            return {"not_found": "unknown", "invalid_argument": "invalid"}[
                response.error.code
            ], details
        return response.status.value, details

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


async def read_row(server: LiveServer, job_id: UUID) -> JobRow:
    return await server.app.client().get(job_id)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, UUID) else value


@pytest.mark.parametrize("interface", [ApiClient, StoreProtocolClient])
@pytest.mark.parametrize(("owner", "team"), KEYS)
def test_api_and_store_protocol_apply_the_same_scope_rules(
    keyed_server: LiveServer,
    interface: type[ApiClient | StoreProtocolClient],
    owner: str | None,
    team: str | None,
) -> None:
    key = make_key(keyed_server, Role.PRODUCER, owner=owner, team=team)
    column = KEYS.index((owner, team))
    with closing(interface(keyed_server, key, owner)) as client:
        for verb, value, *expected in ROWS:
            referenced = create_referenced(keyed_server, verb, value)
            found, text = client.enqueue(verb, value, referenced)
            case = f"{verb} {value} for {owner}/{team}: {text:.300}"
            assert found == expected[column], case
            if found not in {"created", "duplicate"}:
                check_hidden_and_unchanged(keyed_server, verb, referenced, text)


def check_hidden_and_unchanged(
    server: LiveServer, verb: str, referenced: ReferencedJobs, text: str
) -> None:
    for row in (referenced.job, referenced.conflicting):
        if row is not None:
            assert run_on_server(server, read_row(server, row.id)) == row
            named = row is referenced.job and verb in REFERENCED_BY_ID
            assert named or str(row.id) not in text
