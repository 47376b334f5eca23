"""Every route: its method and address, what it asks of the caller, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.server.door import By, Need
from windlass.server.routes import (
    acting,
    bulk,
    entry,
    events,
    flowing,
    health,
    jobs,
    planning,
    session,
    store,
    survey,
    work,
)
from windlass.server.routes.links import KEY, LISTED, MADE, SCHEDULE
from windlass.server.sessions import PATH as SESSION
from windlass.server.wire.jobs import EnqueuedView, EventPageView
from windlass.server.wire.survey import Health
from windlass.stores.wire import PATH


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
    Route("POST", "/api/jobs/actions", bulk.act, Need.PRODUCE, 200, (415,)),
    Route("GET", "/api/jobs", jobs.list_jobs, Need.READ, links=LISTED),
    Route("GET", "/api/jobs/count", jobs.count, Need.READ),
    Route("GET", _JOB, jobs.get, Need.READ, 200, (404,)),
    Route("DELETE", _JOB, acting.delete, Need.REMOVE, 204, (404, 409)),
    Route("GET", f"{_JOB}/attempts", jobs.attempts, Need.READ, 200, (404,)),
    Route("GET", f"{_JOB}/graph", jobs.graph, Need.READ, 200, (404,)),
    Route("GET", f"{_JOB}/why", jobs.why, Need.READ, 200, (404,)),
    Route("GET", f"{_JOB}/events", events.events, Need.READ, 200, (404,), _EVENTS, _TICKET),
    Route("POST", f"{_JOB}/submit", acting.submit, Need.PRODUCE, 200, (404, 409)),
    Route("POST", f"{_JOB}/cancel", acting.cancel, Need.PRODUCE, 200, (404, 409, 415)),
    Route("POST", f"{_JOB}/retry", acting.retry, Need.PRODUCE, 201, (404, 409), _THERE),
    Route("POST", f"{_JOB}/resume", acting.resume, Need.PRODUCE, 201, (404, 409), _THERE),
    Route("GET", "/api/events", events.all_events, Need.READ, 200, (404,), _STREAM, _TICKET),
    Route("POST", "/api/worker/claim", work.claim, Need.WORK, 200, (415,)),
    Route("POST", "/api/worker/extend", work.extend, Need.WORK, 200, (415,), {}, _TOKEN),
    Route("POST", "/api/worker/settle", work.settle, Need.WORK, 200, (415,), {}, _TOKEN),
    Route("POST", "/api/worker/record", work.record, Need.WORK, 200, (415,), {}, _TOKEN),
    Route("GET", "/api/queues", survey.queues, Need.SURVEY),
    Route("POST", f"{_QUEUE}/pause", survey.pause, Need.OPERATE),
    Route("POST", f"{_QUEUE}/resume", survey.resume, Need.OPERATE),
    Route("GET", "/api/workers", survey.workers, Need.SURVEY),
    Route("GET", "/api/tasks", survey.tasks, Need.READ),
    Route("GET", "/api/failures", survey.failures, Need.READ),
    Route("GET", "/api/flows", survey.flows, Need.READ),
    Route("GET", _FLOW, survey.flow, Need.READ, 200, (404,)),
    Route("POST", f"{_FLOW}/cancel", flowing.cancel, Need.PRODUCE, 200, (404, 415)),
    Route("POST", f"{_FLOW}/retry", flowing.retry, Need.PRODUCE, 200, (404, 409)),
    Route("POST", f"{_FLOW}/resume", flowing.resume, Need.PRODUCE, 200, (404, 409)),
    Route("GET", "/api/limits", survey.limits, Need.SURVEY),
    Route("GET", "/api/stats", survey.stats, Need.SURVEY),
    Route("GET", "/api/schedules", planning.schedules, Need.SURVEY),
    Route("POST", "/api/schedules", planning.add, Need.OPERATE, 201, (409, 415), links=SCHEDULE),
    Route("POST", f"{_SCHEDULE}/pause", planning.pause, Need.OPERATE, 200, (404,)),
    Route("POST", f"{_SCHEDULE}/resume", planning.resume, Need.OPERATE, 200, (404,)),
    Route("POST", f"{_SCHEDULE}/run", planning.run, Need.OPERATE, 201, (404, 409)),
    Route("GET", _SCHEDULE, planning.get, Need.SURVEY, 200, (404,)),
    Route("DELETE", _SCHEDULE, planning.delete, Need.OPERATE, 204, (404,)),
    Route("POST", SESSION, session.sign_in, Need.NOTHING, 201, (415,)),
    Route("GET", SESSION, session.who, Need.READ),
    Route("DELETE", SESSION, session.sign_out, Need.NOTHING, 204),
    Route("POST", "/api/tickets", entry.ticket, Need.READ, 201, (409,)),
    Route("POST", "/api/keys", entry.create_key, Need.ADMIN, 201, (415,), links=KEY),
    Route("GET", "/api/keys", entry.keys, Need.ADMIN),
    Route("DELETE", "/api/keys/{id}", entry.revoke_key, Need.ADMIN, 200, (404,)),
    Route("GET", "/api/audit", entry.audit, Need.ADMIN),
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
