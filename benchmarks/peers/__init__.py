"""Windlass beside other job queues on PostgreSQL and Redis: one file per peer, one run.

The peers keep the contract of `windlass.bench.side`; the machinery is that of `windlass bench`.
`servers` starts what they need; `node` is for those written in JavaScript; `goals` says what
Windlass wants to reach. See docs/how-to/benchmark.md.
"""

from __future__ import annotations

from windlass.bench.peers import OURS, OURS_ON_POSTGRES

PEERS = {
    OURS: OURS_ON_POSTGRES,
    "bare": "benchmarks.peers.bare",
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
    "huey": "windlass.bench.peers.huey",
}
