"""The application of the measured `windlass worker`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.child.parent_channel import ParentChannel
from benchmarks.peers.round_config import RoundConfig
from benchmarks.peers.sqlite.windlass import TASK, url_of
from windlass.app import Windlass

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
