"""Schemas of queues, workers, tasks, failures, limits, statistics, health and the audit log."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from windlass.core.admission.limit import Limit
from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.job.state import State
from windlass.core.query.queue_rates import Rates
from windlass.core.worker_presence import LiveWorker
from windlass.insights.failure_groups import FailureGroup, FailureGroups
from windlass.insights.queue_overview import Queue
from windlass.records.limit_records import LimitInfo
from windlass.server.auth.audit import AuditEntry
from windlass.server.schemas.base import ResponseModel, shared_fields
from windlass.store import COUNT_CAP, Rollup
from windlass.task_spec import TaskSpec


class RatesView(ResponseModel):
    """Attempts per minute, mean queue wait and mean run time in seconds, over `minutes`."""

    minutes: float
    started: float
    succeeded: float
    failed: float
    retried: float
    canceled: float
    mean_wait: float | None
    mean_run: float | None

    @staticmethod
    def of(rates: Rates) -> RatesView:
        return RatesView(**shared_fields(RatesView, rates))


class QueueView(ResponseModel):
    """A queue; `counts` are by state, lower bounds for states in `capped`.

    `oldestAge` is the queue wait of the oldest queued job in seconds.
    """

    name: str
    paused: bool
    counts: Mapping[str, int]
    capped: Sequence[str]
    oldest_queued_at: datetime | None
    oldest_age: float | None
    per_minute: RatesView

    @staticmethod
    def of(queue: Queue) -> QueueView:
        values = shared_fields(QueueView, queue) | {
            "counts": {state.value: number for state, number in queue.counts.items()},
            "capped": sorted(state.value for state in queue.capped),
            "per_minute": RatesView.of(queue.rates),
        }
        return QueueView(**values)


class Queues(ResponseModel):
    queues: Sequence[QueueView]


class PausedView(ResponseModel):
    name: str
    paused: bool


class WorkerView(ResponseModel):
    """A running worker; `unresponsive` if it has free slots but has not claimed for a while."""

    name: str
    host: str
    pid: int
    version: str
    queues: Mapping[str, int]
    tasks: Sequence[str]
    started_at: datetime
    seen_at: datetime
    last_claim_at: datetime | None
    running: int
    free: int
    stopping: bool
    unresponsive: bool

    @staticmethod
    def of(worker: LiveWorker) -> WorkerView:
        return WorkerView(**shared_fields(WorkerView, worker))


class Workers(ResponseModel):
    workers: Sequence[WorkerView]


class TaskView(ResponseModel):
    """A task; `arguments` and `result` are JSON schemas, `description` is its docstring."""

    name: str
    description: str
    aliases: Sequence[str]
    queue: str
    priority: int
    max_retries: int
    timeout: float | None
    arguments: Mapping[str, Any]
    result: Mapping[str, Any]

    @staticmethod
    def of(spec: TaskSpec) -> TaskView:
        options = spec.options
        return TaskView(
            name=spec.name,
            description=inspect.getdoc(spec.function) or "",
            aliases=spec.aliases,
            queue=options.queue,
            priority=options.priority,
            max_retries=options.policy.max_retries,
            timeout=options.policy.timeout,
            arguments=spec.signature.schema(),
            result=spec.signature.result_schema(),
        )


class TaskList(ResponseModel):
    tasks: Sequence[TaskView]


class FailureGroupView(ResponseModel):
    """Failed jobs of one task with the same error; type, message and job are of the last one.

    `message` is the first line; messages that differ only in numbers count as the same. Type and
    message are null if the error has none, or if the server lacks the key to decrypt it.
    `jobIds` has all jobs, newest first, if the request names the group.
    """

    key: str
    task: str
    code: str
    type: str | None
    message: str | None
    count: int
    first_at: datetime
    last_at: datetime
    job_id: UUID
    job_ids: Sequence[UUID] | None = None

    @staticmethod
    def of(group: FailureGroup, *, whole: bool) -> FailureGroupView:
        jobs = group.jobs if whole else None
        return FailureGroupView(**shared_fields(FailureGroupView, group), job_ids=jobs)


class FailureList(ResponseModel):
    """Failure groups, most frequent first, of `scanned` jobs; `capped` if more jobs failed."""

    since: datetime
    groups: Sequence[FailureGroupView]
    scanned: int
    capped: bool

    @staticmethod
    def of(found: FailureGroups, since: Instant, limit: int, group: str | None) -> FailureList:
        selected = [item for item in found.groups if group in {None, item.key}]
        whole = group is not None
        return FailureList(
            since=to_datetime(since),
            groups=[FailureGroupView.of(item, whole=whole) for item in selected[:limit]],
            scanned=found.scanned,
            capped=found.capped,
        )


class LimitSettings(ResponseModel):
    """Maximum number of running jobs, and of starts within any `period` seconds."""

    concurrency: int | None
    starts: int | None
    period: float | None

    @staticmethod
    def of(limit: Limit | None) -> LimitSettings | None:
        return None if limit is None else LimitSettings(**shared_fields(LimitSettings, limit))


class LimitView(ResponseModel):
    """A limit; `limit` is in effect: the override, or else the declared one.

    `inUse` counts queued and running jobs, `waiting` jobs that wait for a slot; a lower bound if
    `capped`. Both are null for limits per key (`key:…`), which have many gates.
    """

    name: str
    limit: LimitSettings
    declared: LimitSettings | None
    override: LimitSettings | None
    in_use: int | None
    waiting: int | None
    capped: bool

    @staticmethod
    def of(info: LimitInfo) -> LimitView:
        values = {name: LimitSettings.of(getattr(info, name)) for name in _LIMITS}
        capped = (info.waiting or 0) >= COUNT_CAP
        return LimitView(**shared_fields(LimitView, info) | values | {"capped": capped})


_LIMITS = ("limit", "declared", "override")


class LimitList(ResponseModel):
    limits: Sequence[LimitView]


class StatsGroupBy(StrEnum):
    """Grouping of statistics, in addition to the outcome."""

    QUEUE = "queue"
    TASK = "task"
    NONE = "none"


class StatsRow(ResponseModel):
    """Attempts with this outcome in the `step` seconds from `at`; means are seconds.

    `queue` or `task` is null if it sums up all of them.
    """

    at: datetime
    queue: str | None
    task: str | None
    outcome: State
    count: int
    mean_wait: float
    mean_run: float


class Stats(ResponseModel):
    since: datetime
    until: datetime
    step: int
    rows: Sequence[StatsRow]

    @staticmethod
    def of(
        since: Instant,
        until: Instant,
        step: int,
        rollups: Sequence[Rollup],
        by: StatsGroupBy | None = None,
    ) -> Stats:
        sums: dict[tuple[Instant, str, str, State], list[int]] = {}
        for rollup in rollups:
            at = since + (rollup.minute - since) // (step * SECOND) * step * SECOND
            # No queue or task has an empty name.
            queue = rollup.queue if by in {None, StatsGroupBy.QUEUE} else ""
            task = rollup.task if by in {None, StatsGroupBy.TASK} else ""
            totals = sums.setdefault((at, queue, task, rollup.outcome), [0, 0, 0])
            for index, number in enumerate((rollup.count, rollup.wait, rollup.run)):
                totals[index] += number
        rows = [
            StatsRow(
                at=to_datetime(at),
                queue=queue or None,
                task=task or None,
                outcome=outcome,
                count=count,
                mean_wait=wait / count / SECOND,
                mean_run=run / count / SECOND,
            )
            for (at, queue, task, outcome), (count, wait, run) in sorted(sums.items())
        ]
        return Stats(since=to_datetime(since), until=to_datetime(until), step=step, rows=rows)


class Health(ResponseModel):
    """Health status; `problems` and what to do are shown only to authenticated callers."""

    status: str
    problems: Sequence[str] | None = None


class AuditEntryView(ResponseModel):
    at: datetime
    key_id: str | None
    name: str
    action: str
    target: str


class AuditPage(ResponseModel):
    """Audit entries, newest first; `cursor` leads to older ones."""

    entries: Sequence[AuditEntryView]
    cursor: str | None

    @staticmethod
    def of(entries: Sequence[AuditEntry], limit: int) -> AuditPage:
        views = [
            AuditEntryView(at=to_datetime(entry.at), key_id=entry.key_id, name=entry.name,
                      action=entry.action, target=entry.target)
            for entry in entries
        ]  # fmt: skip
        return AuditPage(
            entries=views, cursor=entries[-1].cursor if len(entries) == limit else None
        )
