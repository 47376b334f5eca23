"""js/src/api-types.d.ts declares exactly the fields of the server's schemas."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel
from tests.js.node import JS

from windlass.core.job.state import State
from windlass.schemas import (
    attempts,
    diagnosis,
    flows,
    job_actions,
    jobs,
    limits,
    queues,
    schedules,
    workers,
)
from windlass.server import problem_details
from windlass.server.schemas import batch_results, job_requests, monitoring
from windlass.server.schemas import schedules as schedule_requests

TEXT = (JS / "src/api-types.d.ts").read_text()
DECLARED = {
    found[1]: (found[2], found[3])
    for found in re.finditer(
        r"^export interface (\w+)([^{]*)\{\n(.*?)^\}", TEXT, re.MULTILINE | re.DOTALL
    )
}
MODELS: dict[str, type[BaseModel]] = {
    "JobSummary": jobs.JobSummary,
    "JobNode": jobs.JobNode,
    "Graph": jobs.GraphView,
    "Job": jobs.JobView,
    "EnqueuedJob": jobs.EnqueuedView,
    "JobError": attempts.ErrorView,
    "JobPage": jobs.JobPage,
    "Count": jobs.CountView,
    "BatchResult": batch_results.EnqueueBatchResult,
    "Attempt": attempts.AttemptView,
    "Diagnosis": diagnosis.DiagnosisView,
    "SubmitResult": job_actions.JobStateView,
    "CancelResult": job_actions.CancelView,
    "BulkActionResult": job_actions.BulkActionView,
    "Queue": queues.QueueView,
    "Worker": workers.WorkerView,
    "Task": monitoring.TaskView,
    "FailureGroup": monitoring.FailureGroupView,
    "Failures": monitoring.FailureList,
    "Limit": limits.LimitView,
    "LimitSettings": limits.LimitSettings,
    "FlowSummary": flows.FlowSummary,
    "FlowPage": flows.FlowPageView,
    "Flow": flows.FlowView,
    "Schedule": schedules.ScheduleView,
    "Stats": monitoring.Stats,
    "Problem": problem_details.Problem,
    "FieldProblem": problem_details.FieldProblem,
    "NewJob": job_requests.EnqueueRequest,
    "NewSchedule": schedule_requests.CreateScheduleRequest,
    "Filter": job_requests.ListJobsRequest,
    "BulkAction": job_requests.BulkActionRequest,
}


def names(interface: str) -> set[str]:
    """Return its own fields and those of the interfaces that it extends."""
    above, body = DECLARED[interface]
    own = set(re.findall(r"^  (\w+)\??:", body, re.MULTILINE))
    return own.union(*(names(name) for name in re.findall(r"\w+", above) if name in DECLARED))


@pytest.mark.parametrize("interface", MODELS)
def test_an_interface_has_the_fields_of_its_model(interface: str) -> None:
    model = MODELS[interface]
    assert names(interface) == {field.alias or name for name, field in model.model_fields.items()}


def test_the_state_type_has_the_states_of_jobs() -> None:
    found = re.search(r"^export type State =\n(.*?);", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert re.findall(r'"(\w+)"', found[1]) == [state.value for state in State]
