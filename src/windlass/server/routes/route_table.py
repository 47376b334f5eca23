"""The route table: method, path, endpoint, permission and responses of every route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.schemas.events import EventPageView
from windlass.schemas.jobs import EnqueuedView
from windlass.server.auth.authenticator import Credential
from windlass.server.auth.permissions import Permission
from windlass.server.auth.sessions import PATH as SESSION
from windlass.server.openapi_links import ENQUEUED, JOB_LIST, KEY, SCHEDULE
from windlass.server.routes import (
    bulk_actions,
    credentials,
    events,
    flows,
    health,
    job_actions,
    jobs,
    monitoring,
    queues,
    schedules,
    sign_in,
    store_protocol,
    worker_api,
)
from windlass.server.schemas.monitoring import Health
from windlass.stores.wire_format import PATH


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    endpoint: Callable[..., Any]
    permission: Permission
    status: int = 200
    problems: tuple[int, ...] = ()
    responses: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # of other statuses
    credentials: frozenset[Credential] = frozenset()  # accepted in addition to a key
    internal: bool = False  # not part of the documented API
    links: Mapping[str, Any] = field(default_factory=dict)  # OpenAPI links of the response


_DUPLICATE = {200: {"model": EnqueuedView, "description": "A duplicate: an existing job."}}
_NEW = _DUPLICATE | {201: {"model": EnqueuedView, "description": "A new job."}}
_EVENTS: Mapping[int, Mapping[str, Any]] = {
    200: {"model": EventPageView, "content": {"text/event-stream": {}}},
    204: {"description": "The job has ended, and the cursor is its last event."},
}
_STREAM: Mapping[int, Mapping[str, Any]] = {
    200: {"description": "A stream of events.", "content": {"text/event-stream": {}}},
    204: {"description": "All named jobs have ended; each cursor is at the last event."},
}
_TEXT: Mapping[int, Mapping[str, Any]] = {200: {"content": {"text/plain": {}}}}
_NOT_READY = {503: {"model": Health, "description": "Not ready."}}

_TICKET = frozenset({Credential.TICKET})
_TOKEN = frozenset({Credential.TASK_TOKEN})

_JOB = "/api/jobs/{id}"
_FLOW = "/api/flows/{id}"
_QUEUE = "/api/queues/{queue:path}"
_SCHEDULE = "/api/schedules/{name:path}"

ROUTES = (
    Route(
        "POST",
        "/api/jobs",
        jobs.enqueue,
        Permission.PRODUCE,
        201,
        (404, 409, 415),
        _NEW,
        links=ENQUEUED,
    ),
    Route("POST", "/api/jobs/batch", jobs.enqueue_batch, Permission.PRODUCE, 200, (415,)),
    Route("POST", "/api/jobs/actions", bulk_actions.apply, Permission.PRODUCE, 200, (415,)),
    Route("GET", "/api/jobs", jobs.list_jobs, Permission.READ, links=JOB_LIST),
    Route("GET", "/api/jobs/count", jobs.count, Permission.READ),
    Route("GET", _JOB, jobs.get, Permission.READ, 200, (404,)),
    Route("DELETE", _JOB, job_actions.delete, Permission.DELETE, 204, (404, 409)),
    Route("GET", f"{_JOB}/attempts", jobs.attempts, Permission.READ, 200, (404,)),
    Route("GET", f"{_JOB}/graph", jobs.graph, Permission.READ, 200, (404,)),
    Route("GET", f"{_JOB}/why", jobs.why, Permission.READ, 200, (404,)),
    Route("GET", f"{_JOB}/events", events.events, Permission.READ, 200, (404,), _EVENTS, _TICKET),
    Route("POST", f"{_JOB}/submit", job_actions.submit, Permission.PRODUCE, 200, (404, 409)),
    Route("POST", f"{_JOB}/cancel", job_actions.cancel, Permission.PRODUCE, 200, (404, 409, 415)),
    Route(
        "POST", f"{_JOB}/retry", job_actions.retry, Permission.PRODUCE, 201, (404, 409), _DUPLICATE
    ),
    Route(
        "POST",
        f"{_JOB}/resume",
        job_actions.resume,
        Permission.PRODUCE,
        201,
        (404, 409),
        _DUPLICATE,
    ),
    Route("GET", "/api/events", events.all_events, Permission.READ, 200, (404,), _STREAM, _TICKET),
    Route("POST", "/api/worker/claim", worker_api.claim, Permission.WORK, 200, (415,)),
    Route(
        "POST", "/api/worker/extend", worker_api.extend, Permission.WORK, 200, (415,), {}, _TOKEN
    ),
    Route(
        "POST", "/api/worker/settle", worker_api.settle, Permission.WORK, 200, (415,), {}, _TOKEN
    ),
    Route(
        "POST", "/api/worker/record", worker_api.record, Permission.WORK, 200, (415,), {}, _TOKEN
    ),
    Route("GET", "/api/queues", queues.list_queues, Permission.MONITOR),
    Route("POST", f"{_QUEUE}/pause", queues.pause, Permission.OPERATE),
    Route("POST", f"{_QUEUE}/resume", queues.resume, Permission.OPERATE),
    Route("GET", "/api/workers", monitoring.workers, Permission.MONITOR),
    Route("GET", "/api/tasks", monitoring.tasks, Permission.READ),
    Route("GET", "/api/failures", monitoring.failures, Permission.READ),
    Route("GET", "/api/flows", flows.list_flows, Permission.READ),
    Route("GET", _FLOW, flows.get, Permission.READ, 200, (404,)),
    Route("POST", f"{_FLOW}/cancel", flows.cancel, Permission.PRODUCE, 200, (404, 415)),
    Route("POST", f"{_FLOW}/retry", flows.retry, Permission.PRODUCE, 200, (404, 409)),
    Route("POST", f"{_FLOW}/resume", flows.resume, Permission.PRODUCE, 200, (404, 409)),
    Route("GET", "/api/limits", monitoring.limits, Permission.MONITOR),
    Route("GET", "/api/stats", monitoring.stats, Permission.MONITOR),
    Route("GET", "/api/schedules", schedules.list_schedules, Permission.MONITOR),
    Route(
        "POST", "/api/schedules", schedules.add, Permission.OPERATE, 201, (409, 415), links=SCHEDULE
    ),
    Route("POST", f"{_SCHEDULE}/pause", schedules.pause, Permission.OPERATE, 200, (404,)),
    Route("POST", f"{_SCHEDULE}/resume", schedules.resume, Permission.OPERATE, 200, (404,)),
    Route("POST", f"{_SCHEDULE}/run", schedules.run, Permission.OPERATE, 201, (404, 409)),
    Route("GET", _SCHEDULE, schedules.get, Permission.MONITOR, 200, (404,)),
    Route("DELETE", _SCHEDULE, schedules.delete, Permission.OPERATE, 204, (404,)),
    Route("POST", SESSION, sign_in.sign_in, Permission.PUBLIC, 201, (415,)),
    Route("GET", SESSION, sign_in.current_caller, Permission.READ),
    Route("DELETE", SESSION, sign_in.sign_out, Permission.PUBLIC, 204),
    Route("POST", "/api/tickets", credentials.create_ticket, Permission.READ, 201, (409,)),
    Route("POST", "/api/keys", credentials.create_key, Permission.ADMIN, 201, (415,), links=KEY),
    Route("GET", "/api/keys", credentials.list_keys, Permission.ADMIN),
    Route("DELETE", "/api/keys/{id}", credentials.revoke_key, Permission.ADMIN, 200, (404,)),
    Route("GET", "/api/audit", monitoring.audit, Permission.ADMIN),
    Route("GET", "/healthz", health.alive, Permission.PUBLIC),
    Route("GET", "/readyz", health.ready, Permission.PUBLIC, 200, (), _NOT_READY),
    Route("GET", "/metrics", health.metrics, Permission.MONITOR, 200, (), _TEXT),
    Route("POST", f"{PATH}/hello", store_protocol.hello, Permission.READ, internal=True),
    Route("POST", f"{PATH}/tail", store_protocol.tail, Permission.READ, internal=True),
    Route("POST", f"{PATH}/why", store_protocol.why, Permission.READ, internal=True),
    Route("POST", f"{PATH}/rotate", store_protocol.rotate, Permission.ADMIN, internal=True),
    *(
        Route(
            "POST",
            f"{PATH}/{name}",
            store_protocol.endpoint(name),
            store_method.permission,
            internal=True,
        )
        for name, store_method in store_protocol.STORE_METHODS.items()
    ),
)
