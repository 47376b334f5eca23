"""Conformance suite of the SQLite store."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.store import Store
from windlass.stores.sqlite import SqliteStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.suite import *  # noqa: F403


@pytest.fixture
def open_store(clock: VirtualClock, tmp_path: Path) -> OpenStore:
    async def open_it() -> Store:
        return SqliteStore(tmp_path / "jobs.db", durability="off", clock=clock)

    return open_it
