"""Programs of the other processes of a storm: worker, sweeper and migration."""

from __future__ import annotations

import asyncio
import os
import sys

from benchmarks.chaos.processes.config import ProcessConfig
from benchmarks.chaos.processes.setup import set_up_process, wrap_store

APP = "benchmarks.chaos.flow_tasks:app"  # has the tasks of all storms


def work(config: ProcessConfig, seed: int) -> None:
    """Run `windlass worker` in a process that has already imported Windlass."""
    set_up_process(config, "worker", seed)
    wrap_store(config, seed)
    from windlass.cli import main  # noqa: PLC0415 - reads the environment

    sys.argv = ["windlass", "worker", APP, *config.arguments]
    main()


def migrate(url: str) -> None:
    """Create the tables with `windlass migrate`."""
    from windlass.cli import main  # noqa: PLC0415 - only this process needs it

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["windlass", "migrate", "--url", url]
    main()


def sweep(config: ProcessConfig, seed: int) -> None:
    """Run only the sweeper loop of a worker."""
    set_up_process(config, "sweeper", seed)
    wrap_store(config, seed)
    asyncio.run(_sweep(config.sweep_interval))


async def _sweep(interval: float) -> None:
    from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment
    from windlass.store import Retention  # noqa: PLC0415 - reads the environment
    from windlass.worker.loops.sweeper import Sweeper  # noqa: PLC0415 - reads the environment

    await Sweeper(tasks.app.client().store, interval, Retention()).run()
