"""Enqueue rules for keys of an owner or team, in one table for the API and the store protocol.

What is expected is written by hand: what becomes of a job that such a key wants to put in, for a
key of gina's red team, one of gina with all her teams, and one of all red teams.
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
from tests.server.conftest import PATIENCE, Served, make_app, serving
from tests.server.remote.test_store_access import make_key

from windlass.client import EnqueueOptions, retry_request
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.stores.http import HttpConfig, HttpStore

KEYS = [("gina", "red"), ("gina", None), (None, "red")]
# what the job says beside its owner, gina         gina/red   gina/*     */red
TABLE = """
nothing                                            created    created    created
team red                                           created    created    created
team blue                                          invalid    created    invalid
owner hans                                         invalid    invalid    created
depends_on gina/red                                created    created    created
depends_on gina/blue                               unknown    created    unknown
depends_on hans/red                                unknown    unknown    unknown
depends_on nobody                                  unknown    unknown    unknown
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
retry nobody                                       unknown    unknown    unknown
retry_of_taken_key gina/red                        conflict   duplicate  conflict
"""
NAMED = {"id", "depends_on", "retry", "retry_of_taken_key"}  # by their ids
ROWS = [(*line[:50].split(), *line[50:].split()) for line in TABLE.strip().splitlines()]
ROWS = [row if len(row) == 5 else (row[0], "", *row[1:]) for row in ROWS]


@dataclass
class Stage:
    """The job that is spoken of, and another that may be in the way."""

    job: JobRow | None
    rival: JobRow | None = None

    @property
    def id(self) -> UUID:
        return UUID(int=7) if self.job is None else self.job.id


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    app = make_app(tmp_path_factory.mktemp("own"), "memory:")
    with serving(Path(), ServerConfig(auth=AuthMode.KEYS, rate=0), app=app) as one:
        yield one


def by_server(served: Served, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, served.loop).result(PATIENCE)


def job(served: Served, **options: Any) -> NewJob:
    spec = served.app.tasks.get("add")
    assert spec is not None
    return served.app.prepare(spec, (1,), {}, EnqueueOptions(**options))


def staged(served: Served, verb: str, whose: str) -> Stage:
    """Fresh for each case; what is retried has ended."""
    if whose in {"", "nobody"} or verb in {"team", "owner"}:
        return Stage(None)
    owner, team = whose.split("/")
    names = {"owner": owner, "request_id": f"r-{uuid4()}", "unique_key": f"u-{uuid4()}"}
    new = job(served, team=team, delay=60, **names)

    async def put() -> Stage:
        client = served.app.client()
        await client.enqueue([new])
        if verb.startswith("retry"):
            await client.cancel(new.id)
        if verb == "retry_of_taken_key":
            other = job(served, owner=owner, team="blue", unique_key=names["unique_key"], delay=60)
            await client.enqueue([other])
            return Stage(await client.get(new.id), await client.get(other.id))
        return Stage(await client.get(new.id))

    stage: Stage = by_server(served, put())
    return stage


def said(verb: str, value: str, stage: Stage) -> dict[str, Any]:
    """The options of the job, by the names that Python has for them."""
    row = stage.job
    match verb:
        case "team" | "owner":
            return {verb: value}
        case "depends_on":
            return {"depends_on": [stage.id]}
        case "id":
            return {"id": stage.id}
        case "request_id" | "unique_key":
            return {verb: getattr(row, verb)}
        case "debounce":
            return {"unique_key": None if row is None else row.unique_key, "debounce": True}
    return {}


class Api:
    """The documented API."""

    def __init__(self, served: Served, key: str, owner: str | None) -> None:
        self._web = served.client(key)

    def ask(self, verb: str, value: str, stage: Stage) -> tuple[str, str]:
        """What became of it, and all that was told."""
        if verb.startswith("retry"):
            answer = self._web.post(f"/api/jobs/{stage.id}/retry")
        else:
            told = {"owner": "gina"} | said(verb, value, stage)
            body = {to_camel(name): _plain(one) for name, one in told.items()}
            answer = self._web.post("/api/jobs", json={"task": "add", "arguments": {"a": 1}} | body)
        return meant(answer), answer.text

    def close(self) -> None:
        self._web.close()


def meant(answer: httpx.Response) -> str:
    if answer.status_code in {200, 201}:
        return "duplicate" if answer.json()["duplicate"] else "created"
    return {404: "unknown", 409: "conflict", 422: "invalid"}[answer.status_code]


class Protocol:
    """The store protocol."""

    def __init__(self, served: Served, key: str, owner: str | None) -> None:
        self._served = served
        self._owner = owner
        self._runner = asyncio.Runner()
        self._store = HttpStore(HttpConfig(url=served.url, key=key))

    def ask(self, verb: str, value: str, stage: Stage) -> tuple[str, str]:
        if verb.startswith("retry"):
            row = stage.job
            new = (
                replace(job(self._served), retry_of=stage.id) if row is None else retry_request(row)
            )
            # As one would ask for it who does not know whose it is.
            new = replace(new, team=None, owner=new.owner if self._owner is None else "")
        else:
            new = job(self._served, **{"owner": "gina"} | said(verb, value, stage))
        [answer] = self._runner.run(self._store.enqueue([new]))
        shown = f"{answer.error} {answer.existing}"
        if answer.status is EnqueueStatus.REFUSED:
            assert answer.error is not None
            return {"not_found": "unknown", "invalid_argument": "invalid"}[answer.error.code], shown
        return answer.status.value, shown

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


async def stored(served: Served, job_id: UUID) -> JobRow:
    return await served.app.client().get(job_id)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


@pytest.mark.parametrize("interface", [Api, Protocol])
@pytest.mark.parametrize(("owner", "team"), KEYS)
def test_both_interfaces_apply_the_same_rule(
    locked: Served, interface: type[Api | Protocol], owner: str | None, team: str | None
) -> None:
    key = make_key(locked, Role.PRODUCER, owner=owner, team=team)
    column = KEYS.index((owner, team))
    with closing(interface(locked, key, owner)) as asker:
        for verb, value, *expected in ROWS:
            stage = staged(locked, verb, value)
            found, text = asker.ask(verb, value, stage)
            case = f"{verb} {value} for {owner}/{team}: {text:.300}"
            assert found == expected[column], case
            if found not in {"created", "duplicate"}:
                nothing_is_told_or_touched(locked, verb, stage, text)


def nothing_is_told_or_touched(served: Served, verb: str, stage: Stage, text: str) -> None:
    for row in (stage.job, stage.rival):
        if row is not None:
            assert by_server(served, stored(served, row.id)) == row
            named = row is stage.job and verb in NAMED
            assert named or str(row.id) not in text
