"""Waiting for the store at the start of a worker.

Waits for: a response of the store. Guarantees: each error is logged once, and again after a minute.
Errors that waiting cannot fix (wrong password, missing database, missing permission) end the worker
with that message. Stops: on request. A crash leaves nothing behind: no job was claimed.
"""

from __future__ import annotations

import asyncio

from windlass.app import Windlass
from windlass.core.errors import SchemaError, StoreError
from windlass.store import Store
from windlass.stores import is_transient, migration_script
from windlass.worker.loops.outage_log import OutageLog

RETRY_DELAY = 0.5  # seconds


async def wait_for_store(app: Windlass, stopping: asyncio.Event, *, retry: bool) -> bool:
    """Wait until the store responds; return False if the worker is stopped before.

    Without `retry`, raise the first error.
    """
    outages = OutageLog("Connecting to the store")
    stopped = asyncio.create_task(stopping.wait())
    try:
        while not stopped.done():
            check = asyncio.create_task(_check(app.client().store))
            await asyncio.wait({check, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not check.done():
                check.cancel()
                return False
            error = check.exception()
            if error is None:
                outages.succeeded()
                outages.log_recovery()
                return True
            if not (retry and isinstance(error, StoreError) and await _may_recover(error, app.url)):
                raise error
            outages.failed(error)
            await asyncio.wait({stopped}, timeout=RETRY_DELAY)
        return False
    finally:
        stopped.cancel()


async def _check(store: Store) -> None:
    """Read as a worker does, so that a key without the worker role fails at the start."""
    await store.ping()
    await store.due(1)


async def _may_recover(error: StoreError, url: str) -> bool:
    """Whether waiting can help. A missing or old schema may be fixed by `windlass migrate`."""
    if not isinstance(error, SchemaError):
        return is_transient(error)
    try:
        return bool(await asyncio.to_thread(migration_script, url))
    except StoreError:
        return False
