"""The application that `windlass worker` runs when it is measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from windlass.app import Windlass
from windlass.bench.child import end_with_parent
from windlass.bench.ledger import Ledger
from windlass.bench.peers.ours import TASK, URL
from windlass.core.query import Query
from windlass.core.state import State

LOOK = 0.001  # seconds
UNFINISHED = Query(states=frozenset(State) - {State.SUCCEEDED}, limit=1)

app = Windlass(URL)
ledger = Ledger.here()
all_ran = asyncio.Event()


@app.task(name=TASK)
async def noop(payload: str) -> None:
    ledger.ran(payload)
    if not ledger.left:
        all_ran.set()


async def _watch() -> None:
    """Every job has run: wait until each of them is settled in the store, too."""
    await all_ran.wait()
    while await _unfinished():  # noqa: ASYNC110 - the store tells of new jobs, not of ends
        await asyncio.sleep(LOOK)
    ledger.settled()


async def _unfinished() -> int:
    return len((await app.client().store.find(UNFINISHED)).rows)


@app.lifespan
async def watched() -> AsyncIterator[None]:
    """Around the whole life of the worker: it begins to fetch right after."""
    end_with_parent()
    watching = asyncio.create_task(_watch())
    ledger.begin()
    yield
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    ledger.end(unfinished=await _unfinished())
