"""A worker that starts before its server does waits for it.

Waits for: an answer of the store. Guarantees: what is wrong is said once, and again after a minute;
what waiting cannot mend (a wrong password, no such database, a key that may not work) ends the
worker with that message.
Stops: when told. A crash leaves nothing: no job was claimed.
"""

from __future__ import annotations

import asyncio

from windlass.app import Windlass
from windlass.core.errors import SchemaError, StoreError
from windlass.store import Store
from windlass.stores import may_pass, migration_script
from windlass.worker.loops.outage_log import Trouble

PAUSE = 0.5  # seconds


async def reach(app: Windlass, stopping: asyncio.Event, *, patient: bool) -> bool:
    """Whether the store was reached; else it was told to stop before."""
    trouble = Trouble("reaching the store")
    stopped = asyncio.create_task(stopping.wait())
    try:
        while not stopped.done():
            asking = asyncio.create_task(_ask(app.client().store))
            await asyncio.wait({asking, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                asking.cancel()
                return False
            error = asking.exception()
            if error is None:
                trouble.over()
                trouble.done()
                return True
            if not (patient and isinstance(error, StoreError) and await _may_pass(error, app.url)):
                raise error
            trouble.met(error)
            await asyncio.wait({stopped}, timeout=PAUSE)
        return False
    finally:
        stopped.cancel()


async def _ask(store: Store) -> None:
    """As a worker does: whose key lets it look, but not work, is told so before it begins."""
    await store.ping()
    await store.due(1)


async def _may_pass(error: StoreError, url: str) -> bool:
    """A schema that is missing or old is mended by whoever runs `windlass migrate`."""
    if not isinstance(error, SchemaError):
        return may_pass(error)
    try:
        return bool(await asyncio.to_thread(migration_script, url))
    except StoreError:
        return False
