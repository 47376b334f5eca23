"""Flows, and the dependency graph of a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import httpx
import pytest
from tests.server.conftest import STREAM, LiveServer, enqueue, make_app, run_server, wait_for

from windlass import Context
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.query.job_query import JobQuery, Page
from windlass.insights.job_graph import MAX_GRAPH_JOBS
from windlass.options import EnqueueOptions
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.routes.flows import MAX_PARENTS
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.task import Task
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def keyed_server(tmp_path: Path) -> Iterator[LiveServer]:
    with run_server(
        tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make_app(tmp_path)
    ) as live_server:
        yield live_server


def put(
    server: LiveServer,
    *parents: UUID,
    flow_id: UUID | None = None,
    owner: str = "",
    team: str | None = None,
    unique_key: str | None = None,
) -> UUID:
    spec = server.app.tasks.get("add")
    assert spec is not None
    options = EnqueueOptions(
        depends_on=parents, flow_id=flow_id, owner=owner, team=team, unique_key=unique_key
    )
    job: NewJob = server.app.prepare(spec, (1,), {}, options)
    [response] = server.app.sync.call(server.app.aenqueue_each([job]))
    assert response.accepted, response.error
    return job.id


def test_flows_are_listed_newest_first_in_pages(keyed_server: LiveServer) -> None:
    flows = [uuid7() for _ in range(3)]
    for flow_id in flows:
        put(keyed_server, put(keyed_server, flow_id=flow_id), flow_id=flow_id)
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        page = web.get("/api/flows", params={"limit": 2}).json()
        assert [flow["id"] for flow in page["flows"]] == [str(flows[2]), str(flows[1])]
        first = page["flows"][0]
        assert first["counts"] == {"queued": 1, "created": 1}
        assert (first["state"], first["percent"], first["capped"]) == ("queued", 0, False)
        assert first["endedAt"] is None
        rest = web.get("/api/flows", params={"limit": 2, "cursor": page["cursor"]}).json()
        assert [flow["id"] for flow in rest["flows"]] == [str(flows[0])]
        assert rest["cursor"] is None
        whole = web.get(f"/api/flows/{flows[2]}").json()
        assert {name: whole[name] for name in first} == first
        for wrong in ({"limit": 0}, {"limit": 101}, {"cursor": "x"}):
            assert web.get("/api/flows", params=wrong).status_code == 422


def test_the_list_of_flows_includes_only_visible_jobs(keyed_server: LiveServer) -> None:
    anns, bobs = uuid7(), uuid7()
    put(keyed_server, flow_id=anns, owner="ann", team="red")
    put(keyed_server, flow_id=bobs, owner="bob", team="red")
    put(keyed_server, flow_id=bobs, owner="bob", team="blue")
    for scope, seen in (
        ({"owner": "ann"}, [(str(anns), 1)]),
        ({"owner": "bob", "team": "blue"}, [(str(bobs), 1)]),
        ({"team": "red"}, [(str(bobs), 1), (str(anns), 1)]),
        ({"owner": "cat"}, []),
    ):
        with keyed_server.client(keyed_server.key(Role.VIEWER, **scope)) as web:
            flows = web.get("/api/flows").json()["flows"]
            assert [(flow["id"], flow["counts"]["queued"]) for flow in flows] == seen


def test_a_mixed_flow_shows_only_visible_jobs(keyed_server: LiveServer) -> None:
    flow_id = uuid7()
    bobs = put(keyed_server, flow_id=flow_id, owner="", team="blue")
    first = put(keyed_server, flow_id=flow_id, owner="", team="red")
    last = put(keyed_server, bobs, first, flow_id=flow_id, owner="", team="red")
    with keyed_server.client(keyed_server.key(Role.VIEWER, team="red")) as web:
        result = web.get(f"/api/flows/{flow_id}").json()
    assert result["counts"] == {"queued": 1, "created": 1}
    assert [(job["id"], job["dependsOn"]) for job in result["jobs"]] == [
        (str(last), [str(first)]),
        (str(first), []),
    ]
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        result = web.get(f"/api/flows/{flow_id}").json()
    assert result["counts"] == {"queued": 2, "created": 1}
    assert result["jobs"][0]["dependsOn"] == [str(bobs), str(first)]
    with keyed_server.client(keyed_server.key(Role.VIEWER, owner="cat")) as web:
        assert web.get(f"/api/flows/{flow_id}").status_code == 404


@pytest.mark.parametrize("verb", ["retry", "resume"])
def test_retrying_a_flow_never_returns_a_job_of_another_team(
    keyed_server: LiveServer, verb: str
) -> None:
    flow_id = uuid7()
    put(keyed_server, flow_id=flow_id, team="red", unique_key="one")
    with keyed_server.client(keyed_server.key(Role.OPERATOR, team="red")) as web:
        assert web.post(f"/api/flows/{flow_id}/cancel").json()["jobs"] == 1
        other = put(keyed_server, team="blue", unique_key="one")
        response = web.post(f"/api/flows/{flow_id}/{verb}")
        assert response.status_code == 409, response.text
        assert response.json()["code"] == "conflict"
        assert str(other) not in response.text
    with keyed_server.client(
        keyed_server.key(Role.OPERATOR)
    ) as web:  # an unscoped key sees both jobs
        assert web.post(f"/api/flows/{flow_id}/{verb}").status_code == 200


def test_a_flow_lists_the_first_parents_of_a_job_and_more_parents(
    keyed_server: LiveServer,
) -> None:
    flow_id = uuid7()
    parents = [put(keyed_server, flow_id=flow_id) for _ in range(MAX_PARENTS + 1)]
    put(keyed_server, *parents[:MAX_PARENTS], flow_id=flow_id)
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        result = web.get(f"/api/flows/{flow_id}").json()
        assert len(result["jobs"][0]["dependsOn"]) == MAX_PARENTS
        assert not result["moreParents"]
        put(keyed_server, *parents, flow_id=flow_id)
        result = web.get(f"/api/flows/{flow_id}").json()
        assert result["jobs"][0]["dependsOn"] == [str(id_) for id_ in parents[:MAX_PARENTS]]
        assert result["moreParents"]


class Searched(WrappedStore):
    """Records the queries of `find`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.searches: list[JobQuery] = []

    def wrap(self, store: Store) -> Searched:
        return self

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    async def find(self, query: JobQuery) -> Page:
        self.searches.append(query)
        return await super().find(query)


def test_lists_do_not_read_payloads(tmp_path: Path) -> None:
    app, store = make_app(tmp_path), Searched(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        run_server(tmp_path, app=app) as server,
        server.client() as web,
    ):
        flow_id = uuid7()
        job = put(server, flow_id=flow_id)
        assert [item["id"] for item in web.get("/api/jobs").json()["jobs"]] == [str(job)]
        assert web.get(f"/api/flows/{flow_id}").json()["jobs"][0]["id"] == str(job)
        with web.stream("GET", "/api/events", headers=STREAM) as result:
            assert str(job) in next(line for line in result.iter_lines() if line.startswith("data"))
        assert len(store.searches) >= 3
        assert all(query.omit_payload for query in store.searches)
        assert web.get(f"/api/jobs/{job}").json()["arguments"] == {"a": 1}


def graph(web: httpx.Client, job: UUID) -> tuple[dict[UUID, list[UUID]], bool]:
    """Return the parents of each job, in response order, and whether the graph is capped."""
    response = web.get(f"/api/jobs/{job}/graph")
    assert response.status_code == 200, response.text
    result = response.json()
    parents = {
        UUID(item["id"]): [UUID(id_) for id_ in item["dependsOn"]] for item in result["jobs"]
    }
    return parents, result["capped"]


def test_the_graph_of_a_single_job_is_that_job(keyed_server: LiveServer) -> None:
    job = put(keyed_server)
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        assert graph(web, job) == ({job: []}, False)


def test_every_job_of_a_graph_returns_the_same_graph(keyed_server: LiveServer) -> None:
    top, other = put(keyed_server), put(keyed_server)
    left, right = put(keyed_server, top), put(keyed_server, top, other)
    end = put(keyed_server, left, right)
    put(keyed_server)
    whole = {top: [], other: [], left: [top], right: [top, other], end: [left, right]}
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        for job in whole:
            parents, capped = graph(web, job)
            assert next(iter(parents)) == job
            assert (parents, capped) == (whole, False)


def test_a_graph_neither_shows_nor_crosses_invisible_jobs(keyed_server: LiveServer) -> None:
    top = put(keyed_server, owner="ann", team="red")
    between = put(keyed_server, top, owner="ann", team="blue")
    mine = put(keyed_server, top, owner="ann", team="red")
    hidden = put(keyed_server, between, owner="ann", team="red")
    with keyed_server.client(keyed_server.key(Role.VIEWER, owner="ann", team="red")) as web:
        assert graph(web, top) == ({top: [], mine: [top]}, False)
        assert graph(web, hidden) == ({hidden: []}, False)
        assert web.get(f"/api/jobs/{between}/graph").status_code == 404


def test_a_wide_graph_is_capped(keyed_server: LiveServer) -> None:
    top = put(keyed_server)
    spec = keyed_server.app.tasks.get("add")
    assert spec is not None
    options = EnqueueOptions(depends_on=(top,))
    wide = [keyed_server.app.prepare(spec, (n,), {}, options) for n in range(MAX_GRAPH_JOBS + 5)]
    keyed_server.app.sync.call(keyed_server.app.aenqueue_each(wide))
    last = put(keyed_server, *(job.id for job in wide))
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        parents, capped = graph(web, top)
        assert (len(parents), capped) == (MAX_GRAPH_JOBS, True)
        assert set(parents) == {top, *(job.id for job in wide[: MAX_GRAPH_JOBS - 1])}
        assert all(parents[job.id] == [top] for job in wide[: MAX_GRAPH_JOBS - 1])
        exact, capped = graph(web, last)
        assert (len(exact), capped) == (MAX_GRAPH_JOBS, True)


def test_a_graph_of_the_maximum_size_is_complete(keyed_server: LiveServer) -> None:
    top = put(keyed_server)
    for _ in range(MAX_GRAPH_JOBS - 1):
        top = put(keyed_server, top)
    with keyed_server.client(keyed_server.key(Role.VIEWER)) as web:
        parents, capped = graph(web, top)
        assert (len(parents), capped) == (MAX_GRAPH_JOBS, False)
        more = put(keyed_server, top)
        parents, capped = graph(web, more)
        assert (len(parents), capped) == (MAX_GRAPH_JOBS, True)


def test_the_graph_of_a_fan_out_has_the_child_jobs(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task(name="part")
    async def part(number: int) -> int:
        return number

    @app.task(name="whole")
    async def whole(ctx: Context) -> int:
        return sum(await ctx.amap(part, [1, 2, 3]))

    with run_server(tmp_path, app=app, worker=True) as server, server.client() as web:
        job = enqueue(web, "whole")["id"]
        wait_for(web, job, "succeeded")
        parents, _ = graph(web, UUID(job))
    parts = parents.pop(UUID(job))
    assert len(parts) == 3
    assert parents == {item: [] for item in parts}


def test_a_flow_is_returned_with_its_jobs_and_dependencies(
    server: LiveServer, web: httpx.Client
) -> None:
    flow = server.app.flow()
    add = server.app.tasks.get("add")
    assert add is not None
    task: Task[..., int] = Task(server.app, add)
    first = flow.add(task, a=1)
    flow.add(task, a=first.result)
    run = flow.enqueue()
    result = web.get(f"/api/flows/{run.id}").json()
    assert result["counts"] == {"queued": 1, "created": 1}
    [last, parent] = result["jobs"]
    assert last["dependsOn"] == [parent["id"]]
    assert web.get(f"/api/flows/{uuid4()}").status_code == 404
    assert web.get("/api/flows/x").status_code == 422
