"""What surrounds jobs, as the server tells of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from windlass.core.admission.gates import Limit
from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.job.dependency import FlowPage, FlowStats
from windlass.core.job.state import State
from windlass.core.query.queue_rates import Rates
from windlass.core.worker_presence import LiveWorker
from windlass.insights.failures import FailureGroup, FailureGroups
from windlass.insights.queues import Queue
from windlass.limits import Limited
from windlass.schedule_records import Planned
from windlass.server.schemas.jobs import JobNode, Wire, opened, taken
from windlass.store import COUNT_CAP, Rollup
from windlass.task_spec import TaskSpec


class RatesView(Wire):
    """Attempts per minute, and mean seconds in line and running, over the last `minutes`."""

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
        return RatesView(**taken(RatesView, rates))


class QueueView(Wire):
    """`counts` are by state; those named in `capped` are lower bounds. `oldestAge` is seconds."""

    name: str
    paused: bool
    counts: Mapping[str, int]
    capped: Sequence[str]
    oldest_queued_at: datetime | None
    oldest_age: float | None
    per_minute: RatesView

    @staticmethod
    def of(queue: Queue) -> QueueView:
        facts = taken(QueueView, queue) | {
            "counts": {state.value: number for state, number in queue.counts.items()},
            "capped": sorted(state.value for state in queue.capped),
            "per_minute": RatesView.of(queue.rates),
        }
        return QueueView(**facts)


class Queues(Wire):
    queues: Sequence[QueueView]


class PausedView(Wire):
    name: str
    paused: bool


class WorkerView(Wire):
    """`deaf`: it lives, has room, and no claim of it was answered for a while."""

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
    deaf: bool

    @staticmethod
    def of(worker: LiveWorker) -> WorkerView:
        return WorkerView(**taken(WorkerView, worker))


class Workers(Wire):
    workers: Sequence[WorkerView]


class TaskView(Wire):
    """`arguments` and `result` are JSON schemas; `about` is what its function says of itself."""

    name: str
    about: str
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
            about=inspect.getdoc(spec.function) or "",
            aliases=spec.aliases,
            queue=options.queue,
            priority=options.priority,
            max_retries=options.policy.max_retries,
            timeout=options.policy.timeout,
            arguments=spec.signature.schema(),
            result=spec.signature.result_schema(),
        )


class TaskList(Wire):
    tasks: Sequence[TaskView]


class FlowSummary(Wire):
    """`counts` are by state. If it is `capped`, all of it is of the newest 1,000 jobs."""

    id: UUID
    state: State
    percent: int
    counts: Mapping[str, int]
    capped: bool
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def facts(cls, stats: FlowStats) -> dict[str, Any]:
        return taken(FlowSummary, stats) | {
            "id": stats.flow_id,
            "counts": {state.value: number for state, number in stats.counts.items()},
        }


class FlowPageView(Wire):
    """`cursor` leads to the next page; null is the end. A page before it may be short or empty."""

    flows: Sequence[FlowSummary]
    cursor: UUID | None

    @staticmethod
    def of(page: FlowPage) -> FlowPageView:
        flows = [FlowSummary(**FlowSummary.facts(one)) for one in page.flows]
        return FlowPageView(flows=flows, cursor=page.cursor)


class FlowView(FlowSummary):
    """`jobs` are the newest ones, at most as many as were asked for; the counts are of all.

    Of each, `dependsOn` names the first 20; `moreParents` says that one of them has more.
    """

    jobs: Sequence[JobNode]
    more_parents: bool

    @staticmethod
    def of(stats: FlowStats, jobs: Sequence[JobNode], *, more: bool) -> FlowView:
        return FlowView(**FlowView.facts(stats), jobs=jobs, more_parents=more)


class FailureGroupView(Wire):
    """Jobs of one task that failed alike; type, message and job are those of the last.

    `message` is its first line; errors whose lines differ in numbers only are alike. Type and
    message are null where an error has none, or was written with a key that is not held here.
    `jobIds` are all of its jobs, the newest first, where one group was asked for by its key.
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
        return FailureGroupView(**taken(FailureGroupView, group), job_ids=jobs)


class FailureList(Wire):
    """The most frequent first. They are of `lookedAt` jobs; if it is `capped`, more had failed."""

    since: datetime
    groups: Sequence[FailureGroupView]
    looked_at: int
    capped: bool

    @staticmethod
    def of(found: FailureGroups, since: Instant, limit: int, group: str | None) -> FailureList:
        some = [one for one in found.groups if group in {None, one.key}]
        whole = group is not None
        return FailureList(
            since=to_datetime(since),
            groups=[FailureGroupView.of(one, whole=whole) for one in some[:limit]],
            looked_at=found.looked_at,
            capped=found.capped,
        )


class FlowActed(Wire):
    """`jobs` is how many of its jobs that concerned."""

    id: UUID
    jobs: int


class LimitFacts(Wire):
    """How many may run at once, and how many may start in any stretch of `period` seconds."""

    concurrency: int | None
    starts: int | None
    period: float | None

    @staticmethod
    def of(limit: Limit | None) -> LimitFacts | None:
        return None if limit is None else LimitFacts(**taken(LimitFacts, limit))


class LimitView(Wire):
    """`limit` holds: what code declares, or what a person gave instead.

    `holding` counts jobs in line or running, `waiting` those that wait at it: at least so many if
    it is `capped`. Of limits per key (`key:…`), which have many gates, both are null.
    """

    name: str
    limit: LimitFacts
    declared: LimitFacts | None
    given: LimitFacts | None
    holding: int | None
    waiting: int | None
    capped: bool

    @staticmethod
    def of(limited: Limited) -> LimitView:
        facts = {name: LimitFacts.of(getattr(limited, name)) for name in _LIMITS}
        capped = (limited.waiting or 0) >= COUNT_CAP
        return LimitView(**taken(LimitView, limited) | facts | {"capped": capped})


_LIMITS = ("limit", "declared", "given")


class LimitList(Wire):
    limits: Sequence[LimitView]


class ScheduleView(Wire):
    """`nextTicks` are five, none while it is paused. `lastJobId` is null if that job is gone.

    `sealed`: the arguments were written with a key not held here.
    """

    name: str
    task: str
    queue: str
    arguments: Any
    sealed: bool
    cron: str | None
    every: float | None
    tz: str
    missed: str
    paused: bool
    declared: bool
    last_tick: datetime | None
    last_job_id: UUID | None
    next_tick: datetime | None
    next_ticks: Sequence[datetime]

    @staticmethod
    def seen(planned: Planned, codec: Codec, *, kept: bool) -> ScheduleView:
        arguments, sealed = opened(codec, planned.payload, Purpose.PAYLOAD)
        facts = taken(ScheduleView, planned) | {"arguments": arguments, "sealed": sealed}
        return ScheduleView(**facts if kept else facts | {"last_job_id": None})


class ScheduleList(Wire):
    schedules: Sequence[ScheduleView]


class By(StrEnum):
    """What numbers are told apart by, beside their outcomes; all else is summed up."""

    QUEUE = "queue"
    TASK = "task"
    NONE = "none"


class StatsLine(Wire):
    """What ended so in the `step` seconds from `at`; means are seconds. Null stands for all."""

    at: datetime
    queue: str | None
    task: str | None
    outcome: State
    count: int
    mean_wait: float
    mean_run: float


class Stats(Wire):
    since: datetime
    until: datetime
    step: int
    lines: Sequence[StatsLine]

    @staticmethod
    def of(
        since: Instant, until: Instant, step: int, rollups: Sequence[Rollup], by: By | None = None
    ) -> Stats:
        sums: dict[tuple[Instant, str, str, State], list[int]] = {}
        for one in rollups:
            at = since + (one.minute - since) // (step * SECOND) * step * SECOND
            queue = one.queue if by in {None, By.QUEUE} else ""  # which no queue is called
            task = one.task if by in {None, By.TASK} else ""
            line = sums.setdefault((at, queue, task, one.outcome), [0, 0, 0])
            for place, number in enumerate((one.count, one.wait, one.run)):
                line[place] += number
        lines = [
            StatsLine(
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
        return Stats(since=to_datetime(since), until=to_datetime(until), step=step, lines=lines)


class Health(Wire):
    """`problems` say what is wrong and what to do, to those who may look."""

    status: str
    problems: Sequence[str] | None = None
