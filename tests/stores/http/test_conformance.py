"""Conformance suite of the HTTP store, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import LiveServer
from tests.stores.http_server import serve_store, server

from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.suite import *  # noqa: F403

# Covers each method through the server; `make test-all` runs the whole suite.
SAMPLE = (
    TestSettleMany,  # noqa: F405
    TestSettleRecords,  # noqa: F405
    TestClaim,  # noqa: F405
    TestHandles,  # noqa: F405
    TestLeases,  # noqa: F405
    TestVersionedRecords,  # noqa: F405
    TestTail,  # noqa: F405
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with server(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def open_store(clock: VirtualClock, served: LiveServer, tmp_path: Path) -> Iterator[OpenStore]:
    with serve_store(served, MemoryStore(clock=clock), tmp_path) as opened:

        async def open_it() -> Store:
            return opened()

        yield open_it
