"""OpenAPI links: operations that take a value of a response, such as a job's id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Links = Mapping[str, Mapping[str, Any]]


def _links(parameter: str, pointer: str, *operations: str) -> Links:
    return {
        operation: {
            "operationId": operation,
            "parameters": {parameter: f"$response.body#/{pointer}"},
        }
        for operation in operations
    }


_JOB_OPERATIONS = (
    "jobs_get",
    "jobs_attempts",
    "jobs_why",
    "jobs_graph",
    "events_events",
    "job_actions_submit",
    "job_actions_cancel",
    "job_actions_retry",
    "job_actions_resume",
    "job_actions_delete",
)
ENQUEUED: Links = _links("id", "id", *_JOB_OPERATIONS)
JOB_LIST: Links = {
    **_links("id", "jobs/0/id", *_JOB_OPERATIONS),
    **_links("cursor", "cursor", "jobs_list_jobs"),
}
SCHEDULE: Links = _links(
    "name",
    "name",
    "schedules_get",
    "schedules_pause",
    "schedules_resume",
    "schedules_run",
    "schedules_delete",
)
KEY: Links = _links("id", "id", "credentials_revoke_key")
