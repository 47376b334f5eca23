"""A server on a real socket, whose store is another one for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.conftest import PATIENCE, Served, serving

from windlass import Windlass
from windlass.server.config import Door, ServerConfig
from windlass.store import Store
from windlass.stores.http import HttpConfig, HttpStore

OPEN = ServerConfig(door=Door.OPEN)


@contextmanager
def server(place: Path, config: ServerConfig = OPEN) -> Iterator[Served]:
    with serving(place, config, app=Windlass("memory:", data=place)) as one:
        yield one


@contextmanager
def standing_in(served: Served, store: Store, place: Path) -> Iterator[Callable[[], HttpStore]]:
    """In the block the server serves this store. Answers how to open it from afar."""
    with served.app.stand_in(store, place):
        try:
            yield lambda: HttpStore(HttpConfig(url=served.url))
        finally:
            asyncio.run_coroutine_threadsafe(_let_go(served), served.loop).result(PATIENCE)


async def _let_go(served: Served) -> None:
    await served.site.news.close()
    await served.app.client().store.close()
