"""Model-based test of PostgreSQL against the memory store, with and without lost calls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import CLEAN, execute

from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.testing import VirtualClock
from windlass.testing.conformance.model import MakeStore, run_model
from windlass.testing.faulty_store import FaultyStore

# `make chaos` multiplies the number of histories, and uses new ones each time.
EFFORT = int(os.environ.get("WINDLASS_EFFORT", "1"))


# `make test` runs an eighth of the histories.
SHARE = pytest.mark.parametrize(
    "share", [pytest.param(8, id="short"), pytest.param(1, id="long", marks=pytest.mark.slow)]
)


def run(make: MakeStore, *, steps: int, examples: int, seed: int) -> None:
    run_model(
        make,
        steps=steps,
        examples=examples * EFFORT,
        seed=seed if EFFORT == 1 else None,
        shrink=EFFORT > 1,
    )


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[MakeStore]:
    """Create stores, and check the tables for inconsistencies after each history."""

    def make(clock: VirtualClock) -> Callable[[], Store]:
        check()
        asyncio.run(execute(postgres_url, CLEAN))
        return lambda: PostgresStore(postgres_url, clock=clock)

    def check() -> None:
        assert asyncio.run(inconsistencies(postgres_url)) == {}

    yield make
    check()


@SHARE
def test_postgres_matches_the_memory_store(postgres: MakeStore, share: int) -> None:
    run(postgres, steps=40, examples=25 // share, seed=5)


@SHARE
@pytest.mark.parametrize("raise_lost", [False, True])
def test_postgres_matches_the_memory_store_with_repeated_calls(
    postgres: MakeStore, raise_lost: bool, share: int
) -> None:
    def make(clock: VirtualClock) -> Callable[[], Store]:
        opened = postgres(clock)
        random = Random(1).random
        return lambda: FaultyStore(opened(), random, lose=0.1, repeat=0.3, raise_lost=raise_lost)

    run(make, steps=40, examples=8 // share, seed=6)
