"""Windlass and other job queues on PostgreSQL and Redis: one file per peer, one run.

The peers implement `QueueAdapter` of `windlass.bench.adapters` and run with the code of
`windlass bench`. `servers` starts their servers, `node` is the base of JavaScript peers, and
`targets` has the targets of Windlass. See docs/how-to/benchmark.md.
"""

from __future__ import annotations

from windlass.bench.adapters import WINDLASS, WINDLASS_ON_POSTGRES

PEERS = {
    WINDLASS: WINDLASS_ON_POSTGRES,
    "bare": "benchmarks.peers.bare_postgres",
    "graphile-worker": "benchmarks.peers.graphile_worker",
    "pg-boss": "benchmarks.peers.pg_boss",
    "pgqueuer": "benchmarks.peers.pgqueuer",
    "procrastinate": "benchmarks.peers.procrastinate",
    "saq": "benchmarks.peers.saq",
    "dbos": "benchmarks.peers.dbos",
    "saq-redis": "benchmarks.peers.saq_redis",
    "taskiq": "benchmarks.peers.taskiq",
    "dramatiq": "benchmarks.peers.dramatiq",
    "celery": "benchmarks.peers.celery",
    "arq": "benchmarks.peers.arq",
    "rq": "benchmarks.peers.rq",
    "huey": "windlass.bench.adapters.huey",
}
