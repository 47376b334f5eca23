"""An application for two tenants: whoever starts writes that down, and goes on when it may."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from windlass import Task, Windlass

STARTS, GO = "starts", "go"  # files in the directory of the test


def declare(app: Windlass) -> Task[[str], None]:
    @app.task(name="turn", limit_key="tenant")
    async def turn(tenant: str) -> None:
        _begin(tenant)
        while not Path(GO).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.01)

    return turn


def _begin(tenant: str) -> None:
    with Path(STARTS).open("a") as file:
        file.write(f"{tenant}\n")


app = Windlass(os.environ.get("WINDLASS_URL", "memory:"))
declare(app)
