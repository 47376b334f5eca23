"""Each rule is tested on a memory store and on a SQLite file, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.specs.factories import add_probe

from windlass import Windlass
from windlass.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of the workspaces."""
    return tmp_path / "data"


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The URL of a file that processes can share."""
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.slow), "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    in_memory = request.param == "memory"
    return "memory:" if in_memory else f"sqlite:///{tmp_path}/jobs.db?durability=off"


@pytest.fixture
async def app(url: str, clock: VirtualClock, data: Path) -> AsyncIterator[Windlass]:
    app = Windlass(url, clock=clock, data=data)
    add_probe(app)
    yield app
    await app.aclose()


@pytest.fixture
async def live(url: str, data: Path) -> AsyncIterator[Windlass]:
    """An app on real time, for the few rules that need it."""
    app = Windlass(url, data=data)
    yield app
    await app.aclose()
