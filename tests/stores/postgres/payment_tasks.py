"""Tasks that store a payment and settle in one transaction; tests kill their worker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import NoReturn

import asyncpg
import psycopg

from windlass import Context, NewJob, Tasks, Windlass, WorkerConfig
from windlass.core.ids import uuid7

tasks = Tasks()
PAY = "INSERT INTO payments VALUES ({})"


def _kill_worker(ctx: Context, kill_at: str, moment: str) -> None:
    if ctx.attempt == 1 and kill_at == moment:
        os.kill(os.getpid(), signal.SIGKILL)


@tasks.task
async def receipt() -> None: ...


class Receipt:
    """Call of the task `receipt` for `ctx.then`, in a process without an app."""

    def new_job(self) -> NewJob:
        return NewJob(id=uuid7(), task=receipt.name, payload=b"{}", lease=1.0)

    async def aenqueue(self) -> NoReturn:
        raise AssertionError("only for `ctx.then`")


@tasks.task(lease=1)
async def pay(ctx: Context, url: str, kill_at: str) -> str:
    connection = await asyncpg.connect(url)
    ctx.then(Receipt())
    async with connection.transaction():
        await connection.execute(PAY.format(ctx.attempt))
        await ctx.asettle_within(connection, "paid")
        _kill_worker(ctx, kill_at, "before the commit")
    _kill_worker(ctx, kill_at, "after the commit")
    await connection.close()
    return "paid"


@tasks.task(executor="process")
def pay_apart(ctx: Context, url: str, *, fail: bool) -> str:
    ctx.log("paying")
    ctx.then(Receipt())
    with psycopg.connect(url) as connection:
        connection.execute(PAY.format(ctx.attempt).encode())
        ctx.settle_within(connection, "paid")
        if fail and ctx.attempt == 1:
            raise ValueError("not this time")
    return "paid"


if __name__ == "__main__":  # a worker, for tests that kill it
    app = Windlass(sys.argv[1])
    app.include(tasks)
    asyncio.run(app.worker(WorkerConfig(poll_interval=0.05, sweep_interval=0.1)).run())
