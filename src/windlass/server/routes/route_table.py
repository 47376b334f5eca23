"""Every route: its method and address, what it asks of the caller, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.server.auth.authenticator import By, Need
from windlass.server.auth.sessions import PATH as SESSION
from windlass.server.routes import (
    access,
    bulk_actions,
    events,
    flow_actions,
    health,
    job_actions,
    jobs,
    overview,
    schedules,
    sign_in,
    store,
    worker,
)
from windlass.server.routes.openapi_links import KEY, LISTED, MADE, SCHEDULE
from windlass.server.schemas.jobs import EnqueuedView, EventPageView
from windlass.server.schemas.overview import Health
from windlass.stores.rpc import PATH


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    endpoint: Callable[..., Any]
    need: Need
    status: int = 200
    problems: tuple[int, ...] = ()
    answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # beside its status
    by: frozenset[By] = frozenset()  # what lets one in beside a key
    internal: bool = False  # no part of the documented API
    links: Mapping[str, Any] = field(default_factory=dict)  # what the answer can be used for


_THERE = {200: {"model": EnqueuedView, "description": "It was there before."}}
_NEW = _THERE | {201: {"model": EnqueuedView, "description": "It is new."}}
_EVENTS: Mapping[int, Mapping[str, Any]] = {
    200: {"model": EventPageView, "content": {"text/event-stream": {}}},
    204: {"description": "The job has ended, and the cursor is its last event's."},
}
_STREAM: Mapping[int, Mapping[str, Any]] = {
    200: {"description": "A stream of events.", "content": {"text/event-stream": {}}},
    204: {"description": "All of the named jobs have ended, and were told whole."},
}
_TEXT: Mapping[int, Mapping[str, Any]] = {200: {"content": {"text/plain": {}}}}
_NOT_READY = {503: {"model": Health, "description": "It is not ready."}}

_TICKET = frozenset({By.TICKET})
_TOKEN = frozenset({By.ATTEMPT})

_JOB = "/api/jobs/{id}"
_FLOW = "/api/flows/{id}"
_QUEUE = "/api/queues/{queue:path}"
_SCHEDULE = "/api/schedules/{name:path}"

TABLE = (
    Route(
        "POST",
        "/api/jobs",
        jobs.enqueue,
        Need.PRODUCE,
        201,
        (404, 409, 415),
        _NEW,
        links=MADE,
    ),
    Route("POST", "/api/jobs/batch", jobs.enqueue_batch, Need.PRODUCE, 200, (415,)),
    Route("POST", "/api/jobs/actions", bulk_actions.act, Need.PRODUCE, 200, (415,)),
    Route("GET", "/api/jobs", jobs.list_jobs, Need.READ, links=LISTED),
    Route("GET", "/api/jobs/count", jobs.count, Need.READ),
    Route("GET", _JOB, jobs.get, Need.READ, 200, (404,)),
    Route("DELETE", _JOB, job_actions.delete, Need.REMOVE, 204, (404, 409)),
    Route("GET", f"{_JOB}/attempts", jobs.attempts, Need.READ, 200, (404,)),
    Route("GET", f"{_JOB}/graph", jobs.graph, Need.READ, 200, (404,)),
    Route("GET", f"{_JOB}/why", jobs.why, Need.READ, 200, (404,)),
    Route("GET", f"{_JOB}/events", events.events, Need.READ, 200, (404,), _EVENTS, _TICKET),
    Route("POST", f"{_JOB}/submit", job_actions.submit, Need.PRODUCE, 200, (404, 409)),
    Route("POST", f"{_JOB}/cancel", job_actions.cancel, Need.PRODUCE, 200, (404, 409, 415)),
    Route("POST", f"{_JOB}/retry", job_actions.retry, Need.PRODUCE, 201, (404, 409), _THERE),
    Route("POST", f"{_JOB}/resume", job_actions.resume, Need.PRODUCE, 201, (404, 409), _THERE),
    Route("GET", "/api/events", events.all_events, Need.READ, 200, (404,), _STREAM, _TICKET),
    Route("POST", "/api/worker/claim", worker.claim, Need.WORK, 200, (415,)),
    Route("POST", "/api/worker/extend", worker.extend, Need.WORK, 200, (415,), {}, _TOKEN),
    Route("POST", "/api/worker/settle", worker.settle, Need.WORK, 200, (415,), {}, _TOKEN),
    Route("POST", "/api/worker/record", worker.record, Need.WORK, 200, (415,), {}, _TOKEN),
    Route("GET", "/api/queues", overview.queues, Need.SURVEY),
    Route("POST", f"{_QUEUE}/pause", overview.pause, Need.OPERATE),
    Route("POST", f"{_QUEUE}/resume", overview.resume, Need.OPERATE),
    Route("GET", "/api/workers", overview.workers, Need.SURVEY),
    Route("GET", "/api/tasks", overview.tasks, Need.READ),
    Route("GET", "/api/failures", overview.failures, Need.READ),
    Route("GET", "/api/flows", overview.flows, Need.READ),
    Route("GET", _FLOW, overview.flow, Need.READ, 200, (404,)),
    Route("POST", f"{_FLOW}/cancel", flow_actions.cancel, Need.PRODUCE, 200, (404, 415)),
    Route("POST", f"{_FLOW}/retry", flow_actions.retry, Need.PRODUCE, 200, (404, 409)),
    Route("POST", f"{_FLOW}/resume", flow_actions.resume, Need.PRODUCE, 200, (404, 409)),
    Route("GET", "/api/limits", overview.limits, Need.SURVEY),
    Route("GET", "/api/stats", overview.stats, Need.SURVEY),
    Route("GET", "/api/schedules", schedules.schedules, Need.SURVEY),
    Route("POST", "/api/schedules", schedules.add, Need.OPERATE, 201, (409, 415), links=SCHEDULE),
    Route("POST", f"{_SCHEDULE}/pause", schedules.pause, Need.OPERATE, 200, (404,)),
    Route("POST", f"{_SCHEDULE}/resume", schedules.resume, Need.OPERATE, 200, (404,)),
    Route("POST", f"{_SCHEDULE}/run", schedules.run, Need.OPERATE, 201, (404, 409)),
    Route("GET", _SCHEDULE, schedules.get, Need.SURVEY, 200, (404,)),
    Route("DELETE", _SCHEDULE, schedules.delete, Need.OPERATE, 204, (404,)),
    Route("POST", SESSION, sign_in.sign_in, Need.NOTHING, 201, (415,)),
    Route("GET", SESSION, sign_in.who, Need.READ),
    Route("DELETE", SESSION, sign_in.sign_out, Need.NOTHING, 204),
    Route("POST", "/api/tickets", access.ticket, Need.READ, 201, (409,)),
    Route("POST", "/api/keys", access.create_key, Need.ADMIN, 201, (415,), links=KEY),
    Route("GET", "/api/keys", access.keys, Need.ADMIN),
    Route("DELETE", "/api/keys/{id}", access.revoke_key, Need.ADMIN, 200, (404,)),
    Route("GET", "/api/audit", access.audit, Need.ADMIN),
    Route("GET", "/healthz", health.alive, Need.NOTHING),
    Route("GET", "/readyz", health.ready, Need.NOTHING, 200, (), _NOT_READY),
    Route("GET", "/metrics", health.metrics, Need.SURVEY, 200, (), _TEXT),
    Route("POST", f"{PATH}/hello", store.hello, Need.READ, internal=True),
    Route("POST", f"{PATH}/tail", store.tail, Need.READ, internal=True),
    Route("POST", f"{PATH}/why", store.why, Need.READ, internal=True),
    Route("POST", f"{PATH}/rotate", store.rotate, Need.ADMIN, internal=True),
    *(
        Route("POST", f"{PATH}/{name}", store.endpoint(name), verb.need, internal=True)
        for name, verb in store.VERBS.items()
    ),
)
