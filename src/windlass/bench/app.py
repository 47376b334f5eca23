"""The application of the measured `windlass worker`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from windlass.app import Windlass
from windlass.bench.job_ledger import BenchParent, Ledger
from windlass.bench.peers.ours import TASK, url_of
from windlass.bench.round_config import RoundConfig

config = RoundConfig.load()
app = Windlass(url_of(config))
ledger = Ledger(config, BenchParent())


@app.task(name=TASK)
async def noop(payload: str) -> None:
    ledger.record_run(payload)


@app.lifespan
async def wait_for_start() -> AsyncIterator[None]:
    """Wait for the start signal; the worker fetches right after."""
    ledger.wait_for_start()
    yield
