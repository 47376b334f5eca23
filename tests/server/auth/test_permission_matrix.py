"""Every route with every caller, for jobs of every tenant.

The expected results are in a table, written by hand. The routes are read from the server, so that
a new route without a rule fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from tests.server.conftest import LiveServer, make_app, run_server

from windlass.core.job.row import JobRow
from windlass.options import EnqueueOptions
from windlass.server import dashboard
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.auth.sessions import COOKIE
from windlass.server.auth.tickets import TICKET, Tickets
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.routes.route_table import ROUTES
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

# Roles: v(iewer) p(roducer) w(orker) o(perator) a(dmin), * without a key.
# Scope: job (named in the request; an invisible job counts as missing), part (visible jobs),
# all (all jobs; forbidden for keys of an owner or team), self.
# Status: of a permitted request. Credential: accepted in addition to a key or session.
RULES = """
POST   /api/jobs                          p.o.a      job   201
POST   /api/jobs/batch                    p.o.a      part  200
POST   /api/jobs/actions                  p.o.a      part  200
GET    /api/jobs                          v.p.w.o.a  part  200
GET    /api/jobs/count                    v.p.w.o.a  part  200
GET    /api/jobs/{id}                     v.p.w.o.a  job   200
DELETE /api/jobs/{id}                     o.a        job   409
GET    /api/jobs/{id}/attempts            v.p.w.o.a  job   200
GET    /api/jobs/{id}/graph               v.p.w.o.a  job   200
GET    /api/jobs/{id}/why                 v.p.w.o.a  job   200
GET    /api/jobs/{id}/events              v.p.w.o.a  job   200  ticket
POST   /api/jobs/{id}/submit              p.o.a      job   200
POST   /api/jobs/{id}/cancel              p.o.a      job   200
POST   /api/jobs/{id}/retry               p.o.a      job   409
POST   /api/jobs/{id}/resume              p.o.a      job   409
GET    /api/events                        v.p.w.o.a  job   200  ticket
POST   /api/worker/claim                  w.a        all   200
POST   /api/worker/extend                 w.a        all   200  token
POST   /api/worker/settle                 w.a        all   200  token
POST   /api/worker/record                 w.a        all   200  token
GET    /api/queues                        v.p.w.o.a  all   200
POST   /api/queues/{queue:path}/pause     o.a        all   200
POST   /api/queues/{queue:path}/resume    o.a        all   200
GET    /api/workers                       v.p.w.o.a  all   200
GET    /api/tasks                         v.p.w.o.a  part  200
GET    /api/failures                      v.p.w.o.a  part  200
GET    /api/flows                         v.p.w.o.a  part  200
GET    /api/flows/{id}                    v.p.w.o.a  part  404
POST   /api/flows/{id}/cancel             p.o.a      part  404
POST   /api/flows/{id}/retry              p.o.a      part  404
POST   /api/flows/{id}/resume             p.o.a      part  404
GET    /api/limits                        v.p.w.o.a  all   200
GET    /api/stats                         v.p.w.o.a  all   200
GET    /api/schedules                     v.p.w.o.a  all   200
POST   /api/schedules                     o.a        all   201
POST   /api/schedules/{name:path}/pause   o.a        all   404
POST   /api/schedules/{name:path}/resume  o.a        all   404
POST   /api/schedules/{name:path}/run     o.a        all   404
GET    /api/schedules/{name:path}         v.p.w.o.a  all   404
DELETE /api/schedules/{name:path}         o.a        all   404
POST   /api/session                       *          self  201
GET    /api/session                       v.p.w.o.a  part  200
DELETE /api/session                       *          part  204
POST   /api/tickets                       v.p.w.o.a  part  201
POST   /api/keys                          a          all   201
GET    /api/keys                          a          all   200
DELETE /api/keys/{id}                     a          all   404
GET    /api/audit                         a          all   200
GET    /api/openapi.json                  v.p.w.o.a  part  200
GET    /healthz                           *          part  200
GET    /readyz                            *          part  200
GET    /metrics                           v.p.w.o.a  all   200
"""
JOB = {"task": "add", "arguments": {"a": 1}, "hold": True}
BODIES: dict[str, Any] = {
    "POST /api/jobs/batch": {"jobs": [JOB]},
    "POST /api/jobs/actions": {"action": "cancel", "filter": {"tag": ["none"]}},
    "POST /api/worker/claim": {"worker": "w", "queues": {"none": 1}, "tasks": ["add"]},
    "POST /api/worker/extend": {"tasks": [{}]},
    "POST /api/worker/settle": {"tasks": [{"outcome": "released"}]},
    "POST /api/worker/record": {"tasks": [{"records": [{"n": 1, "type": "log"}]}]},
    "POST /api/keys": {"name": "new", "roles": ["viewer"]},
}
READS = {"ping", "get", "find", "count", "failures", "stats", "gates", "rollups", "events",
         "attempts", "checkpoints", "edges", "flows", "newest_flows", "get_records",
         "list_records", "wait", "due", "migrate", "close"}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    name: str
    roles: str
    scope: str
    status: int
    credential: str = ""

    @property
    def method(self) -> str:
        return self.name.split()[0]

    @property
    def path(self) -> str:
        return self.name.split()[1]


def rules() -> list[Rule]:
    lines = (line.split() for line in RULES.strip().splitlines())
    return [
        Rule(f"{method} {path}", roles, scope, int(status), "".join(credential))
        for method, path, roles, scope, status, *credential in lines
    ]


@dataclass(frozen=True)
class CallerCase:
    """A caller with its request headers. `role` is None for a caller without permissions."""

    name: str
    role: Role | None = None
    owner: str | None = None
    team: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    key_id: str | None = None

    def can_see(self, owner: str, team: str) -> bool:
        return self.owner in {None, owner} and self.team in {None, team}


class WriteRecorder(WrappedStore):
    """Records writes, except those of the authenticator when it redeems a ticket."""

    writes: list[str]

    def __init__(self, store: Store, writes: list[str]) -> None:
        super().__init__(store)
        self.writes = writes

    def wrap(self, store: Store) -> WriteRecorder:
        return WriteRecorder(store, self.writes)

    async def around(self, verb: str, call: Any) -> Any:
        response = await call()
        if verb in READS:
            return response
        # A batch may be rejected completely, and an empty claim writes nothing.
        result = response if verb in {"enqueue", "claim"} else [None]
        if any(getattr(item, "accepted", True) for item in result):
            self.writes.append(verb)
        return response

    async def put_records(self, puts: Any) -> Any:
        if [put for put in puts if put.kind != TICKET]:
            self.writes.append("put_records")
        return await self.store.put_records(puts)


@dataclass
class MatrixServer:
    """A server on a store that records writes."""

    server: LiveServer
    writes: list[str]

    def call(self, work: Any) -> Any:
        return self.server.app.sync.call(work)

    def jobs(self) -> dict[tuple[str, str], str]:
        """Create a job of alice/red, bob/red and alice/blue; add the id of a missing job."""
        app = self.server.app
        tenants = [("alice", "red"), ("bob", "red"), ("alice", "blue")]
        spec = app.tasks.get("add")
        assert spec is not None
        created = [
            app.prepare(spec, (1,), {}, EnqueueOptions(owner=owner, team=team, hold=True))
            for owner, team in tenants
        ]
        self.call(app.aenqueue_each(created))
        ids = [str(job.id) for job in created]
        return dict(zip([*tenants, ("", "")], [*ids, str(uuid4())], strict=True))

    def key(self, role: Role, owner: str | None, team: str | None) -> tuple[str, str]:
        return self.server.key_and_id(role, owner=owner, team=team)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixServer]:
    writes: list[str] = []
    app = make_app(tmp_path_factory.mktemp("matrix"), "memory:")
    app._root = WriteRecorder(app._root, writes)
    config = ServerConfig(auth=AuthMode.KEYS, auth_failure_burst=1e9, rate=0)
    with run_server(Path(), config, app=app) as server:
        yield MatrixServer(server, writes)


def callers(matrix: MatrixServer) -> list[CallerCase]:
    found = [
        CallerCase("none"),
        CallerCase("garbage", headers={"Authorization": "Bearer wl_000000000000_" + "A" * 43}),
        CallerCase("a session that never was", headers={"Cookie": f"{COOKIE}={'A' * 43}"}),
    ]
    tenants = [(None, None), ("alice", "red")]
    for role in Role:
        for owner, team in [*tenants, *([("alice", None), (None, "red")] * (role == "operator"))]:
            token, key_id = matrix.key(role, owner, team)
            name = f"{role} of {owner}/{team}"
            headers = {"Authorization": f"Bearer {token}"}
            found.append(CallerCase(name, role, owner, team, headers, key_id))
            if owner and team:
                headers = {"Cookie": sign_in(matrix, token), "Sec-Fetch-Site": "same-origin"}
                found.append(CallerCase(f"{name} by session", role, owner, team, headers, key_id))
    return [*found, *invalid_callers(matrix), token_caller(matrix), ticket_caller(matrix)]


def sign_in(matrix: MatrixServer, key: str) -> str:
    with matrix.server.client(key) as web:
        assert web.post("/api/session").status_code == 201
        return f"{COOKIE}={web.cookies[COOKIE]}"


def invalid_callers(matrix: MatrixServer) -> list[CallerCase]:
    """Return callers with a revoked key, with a session of it, and with an expired key."""
    token, key_id = matrix.key(Role.ADMIN, None, None)
    cookie = sign_in(matrix, token)
    matrix.server.context.authenticator._keys.forget(key_id)

    async def end() -> str:
        keys = ApiKeys(matrix.server.app.client().store)
        await keys.revoke(key_id)
        return (await keys.create("old", [Role.ADMIN], expires_in=0.000001))[1]

    old = matrix.call(end())
    return [
        CallerCase("revoked", headers={"Authorization": f"Bearer {token}"}),
        CallerCase("session of a revoked key", headers={"Cookie": cookie}),
        CallerCase("expired", headers={"Authorization": f"Bearer {old}"}),
    ]


def token_caller(matrix: MatrixServer) -> CallerCase:
    """Return a caller with the task token of an attempt."""
    with matrix.server.client(matrix.key(Role.ADMIN, None, None)[0]) as web:
        body = {"task": "add", "arguments": {"a": 1}, "queue": "tokens"}
        assert web.post("/api/jobs", json=body).status_code == 201
        claim = {"worker": "w", "queues": {"tokens": 1}, "tasks": ["add"], "lease": "1h"}
        [job] = web.post("/api/worker/claim", json=claim).json()["jobs"]
    return CallerCase("task token", headers={"Authorization": f"Bearer {job['taskToken']}"})


def ticket_caller(matrix: MatrixServer) -> CallerCase:
    """Return a caller with tickets of a viewer key."""
    return CallerCase("ticket", Role.VIEWER, key_id=matrix.key(Role.VIEWER, None, None)[1])


def expected(rule: Rule, caller: CallerCase, target: tuple[str, str]) -> int:
    if caller.name in {"ticket", "task token"}:
        if rule.credential not in caller.name or not rule.credential:
            open_to_all = caller.name == "ticket" and rule.roles == "*"
            return rule.status if open_to_all and rule.scope == "part" else 401
        return 404 if rule.scope == "job" and target == ("", "") else rule.status
    by_key = "Authorization" in caller.headers
    if rule.scope == "self":
        return rule.status if by_key and caller.role else 401
    if rule.roles == "*":
        return rule.status if caller.role or not by_key else 401
    if caller.role is None:
        return 401
    if caller.role[0] not in rule.roles.split("."):
        return 403
    if rule.scope == "all" and (caller.owner or caller.team):
        return 403
    if rule.scope == "job" and (target == ("", "") or not caller.can_see(*target)):
        return 404
    return rule.status


def send_request(
    web: httpx.Client,
    matrix: MatrixServer,
    rule: Rule,
    caller: CallerCase,
    job_of_tenant: tuple[tuple[str, str], str],
) -> tuple[int, str]:
    target, job = job_of_tenant
    path = rule.path.replace("{id}", job).replace("{queue:path}", "q")
    path = path.replace("{name:path}", "none")
    body = BODIES.get(rule.name)
    params = {}
    # A parent must have the same owner.
    owner = {"owner": target[0]} if caller.owner is None else {}
    new = str(uuid4())
    if rule.name == "POST /api/jobs":
        body = JOB | {"dependsOn": [job], "id": new} | owner
    elif rule.name == "POST /api/schedules":
        body = {"task": "add", "arguments": {"a": 1}, "name": str(uuid4()), "every": "1h"}
    elif rule.path == "/api/events":
        params = {"after": f"{job}:0"}
    if caller.name == "ticket" and caller.key_id is not None:
        params["ticket"] = matrix.call(issue_ticket(matrix, caller.key_id))
    headers = caller.headers | ({"Accept": "text/event-stream"} if "events" in path else {})
    matrix.writes.clear()
    with web.stream(rule.method, path, json=body, params=params, headers=headers) as response:
        if response.status_code < 300 and "events" in path:
            return response.status_code, ""  # the stream of a held job never ends
        response.read()
        return response.status_code, response.text.replace(job, "…").replace(new, "…")


async def issue_ticket(matrix: MatrixServer, key_id: str) -> str:
    return (await Tickets(matrix.server.app.client().store).issue(key_id))[0]


def differences(
    web: httpx.Client, matrix: MatrixServer, rule: Rule, caller: CallerCase
) -> Iterator[str]:
    jobs = matrix.jobs() if rule.scope == "job" else {("", ""): str(uuid4())}
    responses_by_status: dict[int, str] = {}
    for target in reversed(jobs):  # the missing job first
        web.cookies.clear()
        found, text = send_request(web, matrix, rule, caller, (target, jobs[target]))
        expected_value = expected(rule, caller, target)
        line = f"{caller.name}: {rule.name} of {'/'.join(target)}"
        if found != expected_value:
            yield f"{line}: {found}, not {expected_value}: {text:.200}"
        if found in {401, 403} or (found == 404 and rule.scope == "job"):
            if matrix.writes:
                yield f"{line}: rejected, but wrote {matrix.writes}"
            if responses_by_status.setdefault(found, text) != text:
                yield f"{line}: the response differs from that of a missing job: {text}"


def test_every_route_has_a_rule(matrix: MatrixServer) -> None:
    api = matrix.server.uvicorn.config.app
    answered = {f"{m} {r.path}" for r in api.routes if hasattr(r, "path")  # type: ignore[union-attr]
                for m in r.methods if m != "HEAD"}  # fmt: skip
    named = sorted(rule.name for rule in rules())
    # The store protocol has its own table: remote/test_store_access.py covers each of its verbs.
    protocol = {f"{route.method} {route.path}" for route in ROUTES if route.internal}
    # The pages are public and hold no data: see test_dashboard.py.
    pages = {f"GET /{path}" for path in dashboard.PAGES} | {f"GET {dashboard.ASSET}"}
    assert named == sorted(answered - protocol - pages)


def test_every_caller_gets_the_expected_status_on_every_route(matrix: MatrixServer) -> None:
    differences_found: list[str] = []
    with matrix.server.client() as web:
        for caller in callers(matrix):
            for rule in rules():
                if rule.name == "DELETE /api/session" and caller.name.endswith("by session"):
                    continue  # it would end the session; see test_sessions.py
                differences_found += differences(web, matrix, rule, caller)
    assert not differences_found, "\n" + "\n".join(differences_found)


def test_lists_and_bulk_actions_include_only_visible_jobs(matrix: MatrixServer) -> None:
    jobs = matrix.jobs()
    for owner, team in [("alice", "red"), ("alice", None), (None, "red"), (None, None)]:
        caller = CallerCase("", owner=owner, team=team)
        token, _ = matrix.key(Role.OPERATOR, owner, team)
        with matrix.server.client(token) as web:
            seen = {
                job["id"] for job in web.get("/api/jobs", params={"limit": 1000}).json()["jobs"]
            }
            for tenant, job in jobs.items():
                assert (job in seen) is (tenant != ("", "") and caller.can_see(*tenant)), tenant
            body = {"action": "cancel", "filter": {"tag": ["none"]}}
            assert web.post("/api/jobs/actions", json=body).json()["matched"] == 0
    token, _ = matrix.key(Role.OPERATOR, "alice", "red")
    with matrix.server.client(token) as web:
        everything = {"createdFrom": "2000-01-01T00:00:00Z", "limit": 1000}
        web.post("/api/jobs/actions", json={"action": "cancel", "filter": everything})
    rows = matrix.call(rows_of(matrix, [*jobs.values()]))
    states = [None if row is None else row.state.value for row in rows]
    assert states == ["canceled", "created", "created", None]


async def rows_of(matrix: MatrixServer, ids: list[str]) -> list[JobRow | None]:
    return await matrix.server.app.client().store.get([UUID(item) for item in ids])


def test_the_recording_store_records_writes(matrix: MatrixServer) -> None:
    """Proves that the matrix would detect a write of a rejected request."""
    with matrix.server.client(matrix.key(Role.ADMIN, None, None)[0]) as web:
        matrix.writes.clear()
        web.post("/api/queues/q/pause")
        assert matrix.writes
        matrix.writes.clear()
        web.get("/api/jobs")
        assert not matrix.writes
