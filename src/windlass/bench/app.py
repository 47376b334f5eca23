"""The application that `windlass worker` runs when it is measured."""

from __future__ import annotations

from collections.abc import AsyncIterator

from windlass.app import Windlass
from windlass.bench.job_ledger import Ledger, Parent
from windlass.bench.peers.ours import TASK, url_of
from windlass.bench.round_config import Place

place = Place.here()
app = Windlass(url_of(place))
ledger = Ledger(place, Parent())


@app.task(name=TASK)
async def noop(payload: str) -> None:
    ledger.ran(payload)


@app.lifespan
async def begun() -> AsyncIterator[None]:
    """Around the whole life of the worker: it begins to fetch right after."""
    ledger.begin()
    yield
