"""Schemas of flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.state import State
from windlass.schemas.base import JsonModel, shared_fields
from windlass.schemas.jobs import JobNode


class FlowSummary(JsonModel):
    """A flow; `counts` are by state. If `capped`, all values are of its newest 1,000 jobs."""

    id: UUID
    state: State
    percent: int
    counts: Mapping[State, int]
    capped: bool
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def field_values(cls, stats: FlowStats) -> dict[str, Any]:
        return shared_fields(FlowSummary, stats) | {"id": stats.flow_id}


class FlowPageView(JsonModel):
    """A page of flows, maybe short or empty; `cursor` leads to the next page, null is the end."""

    flows: Sequence[FlowSummary]
    cursor: UUID | None

    @staticmethod
    def of(page: FlowPage) -> FlowPageView:
        flows = [FlowSummary(**FlowSummary.field_values(flow)) for flow in page.flows]
        return FlowPageView(flows=flows, cursor=page.cursor)


class FlowView(FlowSummary):
    """A flow with its newest jobs, up to `limit`; counts are of all jobs.

    `dependsOn` has the first 20 dependencies of a job; `moreParents` if any job has more.
    """

    jobs: Sequence[JobNode]
    more_parents: bool

    @staticmethod
    def of(stats: FlowStats, jobs: Sequence[JobNode], *, more: bool) -> FlowView:
        return FlowView(**FlowView.field_values(stats), jobs=jobs, more_parents=more)


class FlowActionView(JsonModel):
    """Result of a flow action; `jobs` is the number of affected jobs."""

    id: UUID
    jobs: int
