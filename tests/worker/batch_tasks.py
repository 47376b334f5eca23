"""A batch task that a child process can find."""

from __future__ import annotations

import os
from dataclasses import dataclass

from windlass import Batch, Tasks, fixed

tasks = Tasks()


@dataclass
class Page:
    number: int


@tasks.task(batch=10, args=Page, backoff=fixed(0))
async def index(batch: Batch[Page, tuple[int, int]]) -> None:
    for page in batch:
        page.succeed((len(batch), os.getpid()))
