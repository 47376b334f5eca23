"""The sides, one file each: `side` is the class that keeps the contract of `windlass.bench.side`.

Their libraries are imported by name when a side is opened: nobody needs them who does not measure,
and no type checker either.
"""

from __future__ import annotations

import importlib

from windlass.bench.side import Side

OURS = "windlass"
OURS_ON_POSTGRES = "windlass.bench.peers.ours_postgres"
PEERS = {
    OURS: "windlass.bench.peers.ours",
    "huey": "windlass.bench.peers.huey",
    "litequeue": "windlass.bench.peers.litequeue",
    "persist-queue": "windlass.bench.peers.persist_queue",
}


def load(module: str) -> type[Side]:
    side: type[Side] = importlib.import_module(module).side
    return side
