"""PostgreSQL against the memory store, on a good and on a bad network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest
from tests.stores.postgres.consistency_checks import contradictions
from tests.stores.postgres.server import CLEAN, execute

from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.testing import VirtualClock
from windlass.testing.conformance.model import MakeStore, run_model
from windlass.testing.faulty_store import FaultyStore

# `make chaos` runs more: so many times the histories, and new ones each time.
EFFORT = int(os.environ.get("WINDLASS_EFFORT", "1"))


SHARE = pytest.mark.parametrize(
    "share", [pytest.param(8, id="short"), pytest.param(1, id="long", marks=pytest.mark.slow)]
)  # `make test` runs an eighth of the histories


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
    """Each history leaves tables that do not contradict each other."""

    def make(clock: VirtualClock) -> Callable[[], Store]:
        check()
        asyncio.run(execute(postgres_url, CLEAN))
        return lambda: PostgresStore(postgres_url, clock=clock)

    def check() -> None:
        assert asyncio.run(contradictions(postgres_url)) == {}

    yield make
    check()


@SHARE
def test_postgres_is_the_same_as_the_memory_store(postgres: MakeStore, share: int) -> None:
    run(postgres, steps=40, examples=25 // share, seed=5)


@SHARE
@pytest.mark.parametrize("raise_lost", [False, True])
def test_postgres_is_the_same_when_calls_are_repeated(
    postgres: MakeStore, raise_lost: bool, share: int
) -> None:
    def make(clock: VirtualClock) -> Callable[[], Store]:
        opened = postgres(clock)
        random = Random(1).random
        return lambda: FaultyStore(opened(), random, lose=0.1, repeat=0.3, raise_lost=raise_lost)

    run(make, steps=40, examples=8 // share, seed=6)
