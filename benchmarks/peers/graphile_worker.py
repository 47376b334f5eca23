"""Graphile Worker: its settings are in node/graphile-worker.mjs."""

from __future__ import annotations

from benchmarks.peers.node import NodeSide


class GraphileWorker(NodeSide):
    package = "graphile-worker"
    release = "0.18.0"
    script = "graphile-worker.mjs"
    durability = "deletes a finished job; completions in batches"
    bulk = "addJobs"
    together = "100 awaited addJob at once, pool of 10"
    waiting = "SELECT count(*) FROM graphile_worker._private_jobs"


side = GraphileWorker
