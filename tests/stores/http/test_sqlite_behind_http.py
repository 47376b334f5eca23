"""Conformance of the HTTP store with a SQLite store behind the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import LiveServer
from tests.stores.http_server import serve_store, server

from windlass.store import Store
from windlass.stores.sqlite import SqliteStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.handles import TestHandles
from windlass.testing.conformance.idempotency import TestIdempotency
from windlass.testing.conformance.jobs.enqueue import TestEnqueue
from windlass.testing.conformance.wakeup import TestWakeup

__all__ = ["TestEnqueue", "TestHandles", "TestIdempotency", "TestWakeup", "clock", "store"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with server(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def open_store(clock: VirtualClock, served: LiveServer, tmp_path: Path) -> Iterator[OpenStore]:
    behind = SqliteStore(tmp_path / "jobs.db", durability="off", clock=clock)
    with serve_store(served, behind, tmp_path) as opened:

        async def open_it() -> Store:
            return opened()

        yield open_it
