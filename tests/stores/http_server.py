"""Server on a real socket, whose store is replaced in each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.conftest import WAIT_TIMEOUT, LiveServer, run_server

from windlass import Windlass
from windlass.server.config import AuthMode, ServerConfig
from windlass.store import Store
from windlass.stores.http import HttpConfig, HttpStore

OPEN = ServerConfig(auth=AuthMode.OPEN)


@contextmanager
def server(place: Path, config: ServerConfig = OPEN) -> Iterator[LiveServer]:
    with run_server(place, config, app=Windlass("memory:", data=place)) as served:
        yield served


@contextmanager
def serve_store(served: LiveServer, store: Store, place: Path) -> Iterator[Callable[[], HttpStore]]:
    """Serve this store inside the block. Yields a function that opens it over HTTP."""
    with served.app.replace_store(store, place):
        try:
            yield lambda: HttpStore(HttpConfig(url=served.url))
        finally:
            asyncio.run_coroutine_threadsafe(_close_store(served), served.loop).result(WAIT_TIMEOUT)


async def _close_store(served: LiveServer) -> None:
    await served.context.wakeups.close()
    await served.app.client().store.close()
