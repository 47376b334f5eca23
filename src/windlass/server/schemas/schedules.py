"""Schemas of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from windlass.core.codec import Codec, Purpose
from windlass.records.schedule_records import ScheduleInfo
from windlass.server.schemas.jobs import ResponseModel, decode_value, shared_fields


class ScheduleView(ResponseModel):
    """A schedule; `nextTicks` has five ticks, none while paused.

    `lastJobId` is null if that job was deleted. `sealed`: the server lacks the key to decrypt the
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
    def from_schedule(info: ScheduleInfo, codec: Codec, *, kept: bool) -> ScheduleView:
        arguments, sealed = decode_value(codec, info.payload, Purpose.PAYLOAD)
        values = shared_fields(ScheduleView, info) | {"arguments": arguments, "sealed": sealed}
        return ScheduleView(**values if kept else values | {"last_job_id": None})


class ScheduleList(ResponseModel):
    schedules: Sequence[ScheduleView]
