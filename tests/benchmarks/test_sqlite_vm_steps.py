"""The number of SQLite steps that a limit costs, which is the same in each run."""

from __future__ import annotations

import pytest
from benchmarks.limits import PLAIN
from benchmarks.sqlite_vm_steps import table

QUEUE, KEYS = "queue concurrency", "concurrency per key"


@pytest.mark.slow
async def test_a_limit_adds_at_most_sixty_percent_of_sqlite_steps() -> None:
    found = await table([PLAIN, QUEUE, KEYS])
    assert 1.2 < found[QUEUE] / found[PLAIN] < 1.6
    assert 1.2 < found[KEYS] / found[PLAIN] < 1.6
