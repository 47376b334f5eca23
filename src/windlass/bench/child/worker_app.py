"""The application of the measured `windlass worker`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from windlass.app import Windlass
from windlass.bench.adapters.windlass_sqlite import TASK, url_of
from windlass.bench.child.job_ledger import JobLedger
from windlass.bench.child.parent_channel import ParentChannel
from windlass.bench.round_config import RoundConfig

config = RoundConfig.load()
app = Windlass(url_of(config))
ledger = JobLedger(config, ParentChannel())


@app.task(name=TASK)
async def noop(payload: str) -> None:
    ledger.record_run(payload)


@app.lifespan
async def wait_for_start() -> AsyncIterator[None]:
    """Wait for the start signal; the worker fetches right after."""
    ledger.wait_for_start()
    yield
