"""What an answer can be used for, told in the OpenAPI document: a job's id leads to the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Links = Mapping[str, Mapping[str, Any]]


def _links(parameter: str, place: str, *operations: str) -> Links:
    return {
        operation: {"operationId": operation, "parameters": {parameter: f"$response.body#/{place}"}}
        for operation in operations
    }


_OF_A_JOB = (
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
MADE: Links = _links("id", "id", *_OF_A_JOB)
LISTED: Links = {
    **_links("id", "jobs/0/id", *_OF_A_JOB),
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
KEY: Links = _links("id", "id", "access_revoke_key")
