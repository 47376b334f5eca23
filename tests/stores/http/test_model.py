"""Model-based test of the HTTP store, with a memory store behind the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.server.conftest import LiveServer
from tests.stores.http_server import serve_store, server

from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock
from windlass.testing.conformance.model import run_model


@pytest.fixture
def served(tmp_path: Path) -> Iterator[LiveServer]:
    with server(tmp_path) as served:
        yield served


@pytest.mark.parametrize("examples", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_the_http_store_matches_the_memory_store(
    served: LiveServer, tmp_path: Path, examples: int
) -> None:
    with ExitStack() as stack:
        now = ExitStack()

        def make(clock: VirtualClock) -> Callable[[], Store]:
            now.close()
            return now.enter_context(serve_store(served, MemoryStore(clock=clock), tmp_path))

        stack.callback(now.close)
        run_model(make, steps=20, examples=examples, seed=6, shrink=False)
