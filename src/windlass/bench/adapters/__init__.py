"""The measured systems, one file each: `adapter` is the class that implements `QueueAdapter`.

An adapter imports its library by name when it is opened, so neither Windlass nor the type checker
needs the library.
"""

from __future__ import annotations

import importlib

from windlass.bench.adapters.queue_adapter import QueueAdapter

WINDLASS = "windlass"
WINDLASS_ON_POSTGRES = "windlass.bench.adapters.windlass_postgres"
PEERS = {
    WINDLASS: "windlass.bench.adapters.windlass_sqlite",
    "huey": "windlass.bench.adapters.huey",
    "litequeue": "windlass.bench.adapters.litequeue",
    "persist-queue": "windlass.bench.adapters.persist_queue",
}


def load(module: str) -> type[QueueAdapter]:
    adapter: type[QueueAdapter] = importlib.import_module(module).adapter
    return adapter
