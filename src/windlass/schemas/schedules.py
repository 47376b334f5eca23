"""Schemas of schedules."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from windlass.client import Client
from windlass.core.codec import Purpose
from windlass.core.schedule import MissedPolicy
from windlass.records.schedule_records import ScheduleInfo
from windlass.schemas.base import JsonModel, decode_value, shared_fields


class ScheduleView(JsonModel):
    """A schedule; `nextTicks` has five ticks, none while paused.

    `lastJobId` is null if that job was deleted. `sealed`: the arguments cannot be decoded
    here.
    """

    name: str
    task: str
    queue: str
    arguments: Any
    sealed: bool
    cron: str | None
    every: float | None
    tz: str
    missed: MissedPolicy
    paused: bool
    declared: bool
    last_tick: datetime | None
    last_job_id: UUID | None
    next_tick: datetime | None
    next_ticks: Sequence[datetime]

    @staticmethod
    def of(info: ScheduleInfo, client: Client, last_jobs: Container[UUID]) -> ScheduleView:
        """Describe a schedule; `last_jobs` are the stored jobs of last ticks."""
        arguments, sealed = decode_value(client.codec, info.payload, Purpose.PAYLOAD)
        values = shared_fields(ScheduleView, info) | {"arguments": arguments, "sealed": sealed}
        deleted = info.last_job_id not in last_jobs
        return ScheduleView(**values | {"last_job_id": None} if deleted else values)


class ScheduleList(JsonModel):
    """Schedules by name."""

    schedules: Sequence[ScheduleView]


async def schedule_views(infos: Sequence[ScheduleInfo], client: Client) -> list[ScheduleView]:
    """Describe schedules; reads which of their last jobs still exist."""
    last = [info.last_job_id for info in infos if info.last_job_id is not None]
    kept = {row.id for row in await client.store.get(last) if row is not None}
    return [ScheduleView.of(info, client, kept) for info in infos]


async def schedule_view(info: ScheduleInfo, client: Client) -> ScheduleView:
    [view] = await schedule_views([info], client)
    return view
