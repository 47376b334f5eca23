"""Graphile Worker: its settings are in node/graphile-worker.mjs."""

from __future__ import annotations

from benchmarks.peers.postgres.node.node_adapter import NodeAdapter


class GraphileWorker(NodeAdapter):
    package = "graphile-worker"
    release = "0.18.0"
    script = "graphile-worker.mjs"
    durability = "deletes a finished job; completions in batches"
    bulk = "addJobs"
    concurrent = "100 awaited addJob at once, pool of 10"
    unfinished_query = "SELECT count(*) FROM graphile_worker._private_jobs"


adapter = GraphileWorker
