"""pg-boss: its settings are in node/pg-boss.mjs."""

from __future__ import annotations

from benchmarks.peers.postgres.node.node_adapter import NodeAdapter


class PgBoss(NodeAdapter):
    package = "pg-boss"
    release = "12.35.0"
    script = "pg-boss.mjs"
    durability = "keeps a finished job"
    bulk = "insert"
    concurrent = "100 awaited send at once, pool of 10"
    unfinished_query = (
        "SELECT count(*) FROM pgboss.job WHERE name = 'bench' AND state < 'completed'"
    )


adapter = PgBoss
