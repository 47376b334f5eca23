"""App for two tenants: each job records its start, then waits for a file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from windlass import Task, Windlass

STARTS, GO = "starts", "go"  # files in the directory of the test


def declare(app: Windlass) -> Task[[str], None]:
    @app.task(name="report_start", limit_key="tenant")
    async def report_start(tenant: str) -> None:
        _record_start(tenant)
        while not Path(GO).exists():  # noqa: ASYNC110, ASYNC240 - another process creates it
            await asyncio.sleep(0.01)

    return report_start


def _record_start(tenant: str) -> None:
    with Path(STARTS).open("a") as file:
        file.write(f"{tenant}\n")


app = Windlass(os.environ.get("WINDLASS_URL", "memory:"))
declare(app)
