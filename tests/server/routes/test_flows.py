"""Flows in a list, and the graph around a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import httpx
import pytest
from tests.server.conftest import STREAM, Served, enqueue, make_app, serving, wait_for

from windlass import Context
from windlass.client import EnqueueOptions
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.query.job_query import Page, Query
from windlass.insights.job_graph import MAX_GRAPH_JOBS
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.routes.overview import MAX_PARENTS
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make_app(tmp_path)) as one:
        yield one


def put(
    served: Served,
    *parents: UUID,
    flow_id: UUID | None = None,
    owner: str = "",
    team: str | None = None,
    unique_key: str | None = None,
) -> UUID:
    spec = served.app.tasks.get("add")
    assert spec is not None
    options = EnqueueOptions(
        depends_on=parents, flow_id=flow_id, owner=owner, team=team, unique_key=unique_key
    )
    job: NewJob = served.app.prepare(spec, (1,), {}, options)
    [answer] = served.app.sync.call(served.app.aenqueue_each([job]))
    assert answer.accepted, answer.error
    return job.id


def test_flows_are_listed_the_newest_first_in_pages(locked: Served) -> None:
    flows = [uuid7() for _ in range(3)]
    for flow_id in flows:
        put(locked, put(locked, flow_id=flow_id), flow_id=flow_id)
    with locked.client(locked.key(Role.VIEWER)) as web:
        page = web.get("/api/flows", params={"limit": 2}).json()
        assert [one["id"] for one in page["flows"]] == [str(flows[2]), str(flows[1])]
        first = page["flows"][0]
        assert first["counts"] == {"queued": 1, "created": 1}
        assert (first["state"], first["percent"], first["capped"]) == ("queued", 0, False)
        assert first["endedAt"] is None
        rest = web.get("/api/flows", params={"limit": 2, "cursor": page["cursor"]}).json()
        assert [one["id"] for one in rest["flows"]] == [str(flows[0])]
        assert rest["cursor"] is None
        whole = web.get(f"/api/flows/{flows[2]}").json()
        assert {name: whole[name] for name in first} == first
        for wrong in ({"limit": 0}, {"limit": 101}, {"cursor": "x"}):
            assert web.get("/api/flows", params=wrong).status_code == 422


def test_a_list_of_flows_is_of_ones_own_jobs(locked: Served) -> None:
    anns, bobs = uuid7(), uuid7()
    put(locked, flow_id=anns, owner="ann", team="red")
    put(locked, flow_id=bobs, owner="bob", team="red")
    put(locked, flow_id=bobs, owner="bob", team="blue")
    for whose, seen in (
        ({"owner": "ann"}, [(str(anns), 1)]),
        ({"owner": "bob", "team": "blue"}, [(str(bobs), 1)]),
        ({"team": "red"}, [(str(bobs), 1), (str(anns), 1)]),
        ({"owner": "cat"}, []),
    ):
        with locked.client(locked.key(Role.VIEWER, **whose)) as web:
            flows = web.get("/api/flows").json()["flows"]
            assert [(one["id"], one["counts"]["queued"]) for one in flows] == seen


def test_of_a_mixed_flow_one_is_told_of_ones_own_jobs_only(locked: Served) -> None:
    flow_id = uuid7()
    bobs = put(locked, flow_id=flow_id, owner="", team="blue")
    first = put(locked, flow_id=flow_id, owner="", team="red")
    last = put(locked, bobs, first, flow_id=flow_id, owner="", team="red")
    with locked.client(locked.key(Role.VIEWER, team="red")) as web:
        told = web.get(f"/api/flows/{flow_id}").json()
    assert told["counts"] == {"queued": 1, "created": 1}
    assert [(one["id"], one["dependsOn"]) for one in told["jobs"]] == [
        (str(last), [str(first)]),
        (str(first), []),
    ]
    with locked.client(locked.key(Role.VIEWER)) as web:
        told = web.get(f"/api/flows/{flow_id}").json()
    assert told["counts"] == {"queued": 2, "created": 1}
    assert told["jobs"][0]["dependsOn"] == [str(bobs), str(first)]
    with locked.client(locked.key(Role.VIEWER, owner="cat")) as web:
        assert web.get(f"/api/flows/{flow_id}").status_code == 404


@pytest.mark.parametrize("verb", ["retry", "resume"])
def test_another_teams_job_never_stands_for_one_of_a_flow(locked: Served, verb: str) -> None:
    flow_id = uuid7()
    put(locked, flow_id=flow_id, team="red", unique_key="one")
    with locked.client(locked.key(Role.OPERATOR, team="red")) as web:
        assert web.post(f"/api/flows/{flow_id}/cancel").json()["jobs"] == 1
        other = put(locked, team="blue", unique_key="one")
        answer = web.post(f"/api/flows/{flow_id}/{verb}")
        assert answer.status_code == 409, answer.text
        assert answer.json()["code"] == "conflict"
        assert str(other) not in answer.text
    with locked.client(locked.key(Role.OPERATOR)) as web:  # who sees both is told of both
        assert web.post(f"/api/flows/{flow_id}/{verb}").status_code == 200


def test_of_many_parents_in_a_flow_the_first_are_told_and_that_there_are_more(
    locked: Served,
) -> None:
    flow_id = uuid7()
    parents = [put(locked, flow_id=flow_id) for _ in range(MAX_PARENTS + 1)]
    put(locked, *parents[:MAX_PARENTS], flow_id=flow_id)
    with locked.client(locked.key(Role.VIEWER)) as web:
        told = web.get(f"/api/flows/{flow_id}").json()
        assert len(told["jobs"][0]["dependsOn"]) == MAX_PARENTS
        assert not told["moreParents"]
        put(locked, *parents, flow_id=flow_id)
        told = web.get(f"/api/flows/{flow_id}").json()
        assert told["jobs"][0]["dependsOn"] == [str(id_) for id_ in parents[:MAX_PARENTS]]
        assert told["moreParents"]


class Searched(WrappedStore):
    """Keeps what was searched for."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.searches: list[Query] = []

    def wrap(self, store: Store) -> Searched:
        return self

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    async def find(self, query: Query) -> Page:
        self.searches.append(query)
        return await super().find(query)


def test_lists_ask_the_store_for_no_payloads(tmp_path: Path) -> None:
    app, store = make_app(tmp_path), Searched(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        serving(tmp_path, app=app) as served,
        served.client() as web,
    ):
        flow_id = uuid7()
        job = put(served, flow_id=flow_id)
        assert [one["id"] for one in web.get("/api/jobs").json()["jobs"]] == [str(job)]
        assert web.get(f"/api/flows/{flow_id}").json()["jobs"][0]["id"] == str(job)
        with web.stream("GET", "/api/events", headers=STREAM) as told:
            assert str(job) in next(line for line in told.iter_lines() if line.startswith("data"))
        assert len(store.searches) >= 3
        assert all(query.omit_payload for query in store.searches)
        assert web.get(f"/api/jobs/{job}").json()["arguments"] == {"a": 1}


def graph(web: httpx.Client, job: UUID) -> tuple[dict[UUID, list[UUID]], bool]:
    """Whom each job depends on, in the order in which they are told; and whether there are more."""
    answer = web.get(f"/api/jobs/{job}/graph")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    parents = {UUID(one["id"]): [UUID(id_) for id_ in one["dependsOn"]] for one in told["jobs"]}
    return parents, told["capped"]


def test_a_job_alone_is_a_graph_of_one(locked: Served) -> None:
    job = put(locked)
    with locked.client(locked.key(Role.VIEWER)) as web:
        assert graph(web, job) == ({job: []}, False)


def test_a_graph_is_the_same_from_each_of_its_jobs(locked: Served) -> None:
    top, other = put(locked), put(locked)
    left, right = put(locked, top), put(locked, top, other)
    end = put(locked, left, right)
    put(locked)
    whole = {top: [], other: [], left: [top], right: [top, other], end: [left, right]}
    with locked.client(locked.key(Role.VIEWER)) as web:
        for job in whole:
            parents, capped = graph(web, job)
            assert next(iter(parents)) == job
            assert (parents, capped) == (whole, False)


def test_jobs_of_others_are_neither_in_a_graph_nor_on_the_way(locked: Served) -> None:
    top = put(locked, owner="ann", team="red")
    between = put(locked, top, owner="ann", team="blue")
    mine = put(locked, top, owner="ann", team="red")
    hidden = put(locked, between, owner="ann", team="red")
    with locked.client(locked.key(Role.VIEWER, owner="ann", team="red")) as web:
        assert graph(web, top) == ({top: [], mine: [top]}, False)
        assert graph(web, hidden) == ({hidden: []}, False)
        assert web.get(f"/api/jobs/{between}/graph").status_code == 404


def test_a_wide_graph_is_cut_short_and_it_is_said(locked: Served) -> None:
    top = put(locked)
    spec = locked.app.tasks.get("add")
    assert spec is not None
    options = EnqueueOptions(depends_on=(top,))
    wide = [locked.app.prepare(spec, (n,), {}, options) for n in range(MAX_GRAPH_JOBS + 5)]
    locked.app.sync.call(locked.app.aenqueue_each(wide))
    last = put(locked, *(job.id for job in wide))
    with locked.client(locked.key(Role.VIEWER)) as web:
        parents, capped = graph(web, top)
        assert (len(parents), capped) == (MAX_GRAPH_JOBS, True)
        assert set(parents) == {top, *(job.id for job in wide[: MAX_GRAPH_JOBS - 1])}
        assert all(parents[job.id] == [top] for job in wide[: MAX_GRAPH_JOBS - 1])
        exact, capped = graph(web, last)
        assert (len(exact), capped) == (MAX_GRAPH_JOBS, True)


def test_a_graph_that_just_fits_is_whole(locked: Served) -> None:
    top = put(locked)
    for _ in range(MAX_GRAPH_JOBS - 1):
        top = put(locked, top)
    with locked.client(locked.key(Role.VIEWER)) as web:
        parents, capped = graph(web, top)
        assert (len(parents), capped) == (MAX_GRAPH_JOBS, False)
        more = put(locked, top)
        parents, capped = graph(web, more)
        assert (len(parents), capped) == (MAX_GRAPH_JOBS, True)


def test_what_a_job_fanned_out_into_is_around_it(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task(name="part")
    async def part(number: int) -> int:
        return number

    @app.task(name="whole")
    async def whole(ctx: Context) -> int:
        return sum(await ctx.amap(part, [1, 2, 3]))

    with serving(tmp_path, app=app, worker=True) as served, served.client() as web:
        job = enqueue(web, "whole")["id"]
        wait_for(web, job, "succeeded")
        parents, _ = graph(web, UUID(job))
    parts = parents.pop(UUID(job))
    assert len(parts) == 3
    assert parents == {one: [] for one in parts}
