"""The sides, one file each: `side` is the class that implements `windlass.bench.side.Side`.

A side imports its library by name when it is opened, so neither Windlass nor the type checker needs
the library.
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
