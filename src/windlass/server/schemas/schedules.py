"""Schemas of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from windlass.client import EnqueueOptions
from windlass.core.codec import Codec, Purpose
from windlass.core.job.new_job import NewJob
from windlass.records.schedule_records import ScheduleInfo
from windlass.server.auth.caller import Caller
from windlass.server.context import ServedApp
from windlass.server.schemas.base import Duration, ResponseModel, shared_fields
from windlass.server.schemas.job_requests import JobOptions
from windlass.server.schemas.jobs import decode_value


class ScheduleView(ResponseModel):
    """A schedule; `nextTicks` has five ticks, none while paused.

    `lastJobId` is null if that job was deleted. `sealed`: this server cannot decode the
    arguments.
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
    def from_schedule(info: ScheduleInfo, codec: Codec, *, last_job_exists: bool) -> ScheduleView:
        arguments, sealed = decode_value(codec, info.payload, Purpose.PAYLOAD)
        values = shared_fields(ScheduleView, info) | {"arguments": arguments, "sealed": sealed}
        return ScheduleView(**values if last_job_exists else values | {"last_job_id": None})


class ScheduleList(ResponseModel):
    schedules: Sequence[ScheduleView]


class CreateScheduleRequest(JobOptions):
    """A schedule: either `cron` (with `tz`) or `every`."""

    name: str
    cron: str | None = None
    every: Duration | None = None
    tz: str | None = None
    missed: Literal["skip", "last", "all"] = "last"

    def new_job(self, app: ServedApp, caller: Caller) -> NewJob:
        return self.prepare(app, EnqueueOptions(**self.options(caller)))
