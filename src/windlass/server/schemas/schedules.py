"""Schema of the request to create a schedule."""

from __future__ import annotations

from typing import Literal

from windlass.core.job.new_job import NewJob
from windlass.options import EnqueueOptions
from windlass.server.auth.caller import Caller
from windlass.server.context import ServedApp
from windlass.server.schemas.base import Duration
from windlass.server.schemas.job_requests import JobOptions


class CreateScheduleRequest(JobOptions):
    """A schedule: either `cron` (with `tz`) or `every`."""

    name: str
    cron: str | None = None
    every: Duration | None = None
    tz: str | None = None
    missed: Literal["skip", "last", "all"] = "last"

    def new_job(self, app: ServedApp, caller: Caller) -> NewJob:
        return self.prepare(app, EnqueueOptions(**self.options(caller)))
