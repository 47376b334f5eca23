"""What surrounds jobs, as the server tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.dependency import Edges, FlowStats
from windlass.core.job import JobRow
from windlass.core.queue import Rates
from windlass.core.state import State
from windlass.core.worker import LiveWorker
from windlass.queues import Queue
from windlass.server.audit import Note
from windlass.server.keys import Key
from windlass.server.wire.jobs import JobSummary, Wire, taken
from windlass.store import Rollup
from windlass.task import TaskSpec
from windlass.timetable import Planned


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
    """`arguments` and `result` are JSON schemas."""

    name: str
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


class FlowJob(JobSummary):
    depends_on: Sequence[UUID]

    @staticmethod
    def seen(row: JobRow, edges: Edges) -> FlowJob:
        return FlowJob(**FlowJob.facts(row) | {"depends_on": edges.parents})


class FlowView(Wire):
    """`jobs` are the newest ones, at most as many as were asked for; the counts are of all."""

    id: UUID
    state: State
    percent: int
    counts: Mapping[str, int]
    created_at: datetime
    ended_at: datetime | None
    jobs: Sequence[FlowJob]

    @staticmethod
    def of(stats: FlowStats, jobs: Sequence[FlowJob]) -> FlowView:
        facts = taken(FlowView, stats) | {
            "id": stats.flow_id,
            "counts": {state.value: number for state, number in stats.counts.items()},
            "jobs": jobs,
        }
        return FlowView(**facts)


class ScheduleView(Wire):
    name: str
    task: str
    cron: str | None
    every: float | None
    tz: str
    missed: str
    paused: bool
    declared: bool
    last_tick: datetime | None
    next_tick: datetime | None

    @staticmethod
    def of(planned: Planned) -> ScheduleView:
        return ScheduleView(**taken(ScheduleView, planned))


class ScheduleList(Wire):
    schedules: Sequence[ScheduleView]


class StatsLine(Wire):
    """What ended so in the `step` seconds from `from`; means are seconds."""

    at: datetime
    queue: str
    task: str
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
    def of(since: Instant, until: Instant, step: int, rollups: Sequence[Rollup]) -> Stats:
        sums: dict[tuple[Instant, str, str, State], list[int]] = {}
        for one in rollups:
            at = since + (one.minute - since) // (step * SECOND) * step * SECOND
            line = sums.setdefault((at, one.queue, one.task, one.outcome), [0, 0, 0])
            for place, number in enumerate((one.count, one.wait, one.run)):
                line[place] += number
        lines = [
            StatsLine(
                at=to_datetime(at),
                queue=queue,
                task=task,
                outcome=outcome,
                count=count,
                mean_wait=wait / count / SECOND,
                mean_run=run / count / SECOND,
            )
            for (at, queue, task, outcome), (count, wait, run) in sorted(sums.items())
        ]
        return Stats(since=to_datetime(since), until=to_datetime(until), step=step, lines=lines)


class AuditNote(Wire):
    at: datetime
    key_id: str | None
    name: str
    action: str
    target: str


class AuditPage(Wire):
    """The newest first; `cursor` leads to those before."""

    notes: Sequence[AuditNote]
    cursor: str | None

    @staticmethod
    def of(notes: Sequence[Note], limit: int) -> AuditPage:
        told = [
            AuditNote(at=to_datetime(one.at), key_id=one.key_id, name=one.name,
                      action=one.action, target=one.target)
            for one in notes
        ]  # fmt: skip
        return AuditPage(notes=told, cursor=notes[-1].cursor if len(notes) == limit else None)


class Health(Wire):
    """`problems` say what is wrong and what to do, to those who may look."""

    status: str
    problems: Sequence[str] | None = None


class KeyView(Wire):
    id: str
    name: str
    roles: Sequence[str]
    owner: str | None
    team: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: Key) -> KeyView:
        return KeyView(**taken(KeyView, key) | {"roles": sorted(key.roles)})


class NewKeyView(KeyView):
    """`key` is what its holder sends; it is not kept, and not told again."""

    key: str

    @staticmethod
    def made(key: Key, token: str) -> NewKeyView:
        return NewKeyView(**KeyView.of(key).model_dump(), key=token)


class KeyList(Wire):
    keys: Sequence[KeyView]


class TicketView(Wire):
    ticket: str
    expires_at: datetime


class WhoView(Wire):
    """`by` is how one came in: with a session, with a key, or without either (`open`)."""

    name: str
    roles: Sequence[str]
    owner: str | None
    team: str | None
    key_id: str | None
    by: Literal["session", "key", "open"]


class SessionView(WhoView):
    expires_at: datetime
