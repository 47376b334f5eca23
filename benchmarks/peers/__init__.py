"""Windlass and other job queues in one run: on SQLite, or on PostgreSQL and Redis.

All systems run the same no-op jobs with the same payload on the same disk, in new processes, and
alternate round by round. `sqlite/`, `postgres/` and `redis/` have one file per system, which
implements `QueueAdapter`. `child/` runs in the measured processes. `comparison` runs all rounds,
`round` one of them, and `results` computes medians and ratios. `servers` starts the servers.

Measured processes import this package, so it imports nothing of Windlass and no library: the
memory of a peer has only the peer. See docs/how-to/benchmark.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.peers.queue_adapter import QueueAdapter

WINDLASS = "windlass"
SQLITE_PEERS = {
    WINDLASS: "benchmarks.peers.sqlite.windlass",
    "huey": "benchmarks.peers.sqlite.huey",
    "litequeue": "benchmarks.peers.sqlite.litequeue",
    "persist-queue": "benchmarks.peers.sqlite.persist_queue",
}
SERVER_PEERS = {
    WINDLASS: "benchmarks.peers.postgres.windlass",
    "bare": "benchmarks.peers.postgres.bare",
    "graphile-worker": "benchmarks.peers.postgres.graphile_worker",
    "pg-boss": "benchmarks.peers.postgres.pg_boss",
    "pgqueuer": "benchmarks.peers.postgres.pgqueuer",
    "procrastinate": "benchmarks.peers.postgres.procrastinate",
    "saq": "benchmarks.peers.postgres.saq",
    "dbos": "benchmarks.peers.postgres.dbos",
    "saq-redis": "benchmarks.peers.redis.saq",
    "taskiq": "benchmarks.peers.redis.taskiq",
    "dramatiq": "benchmarks.peers.redis.dramatiq",
    "celery": "benchmarks.peers.redis.celery",
    "arq": "benchmarks.peers.redis.arq",
    "rq": "benchmarks.peers.redis.rq",
    "huey": SQLITE_PEERS["huey"],
}


def load(module: str) -> type[QueueAdapter]:
    adapter: type[QueueAdapter] = importlib.import_module(module).adapter
    return adapter
