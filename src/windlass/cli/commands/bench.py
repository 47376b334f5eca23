"""`windlass bench`: measures the store of the user with its own jobs, and removes them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_benchmark import (
    BenchmarkResult,
    ReportProgress,
    StoreBenchmark,
    Throughput,
)
from windlass.cli.store_connection import find_store, open_client
from windlass.cli.store_durability import store_durability
from windlass.client import Client
from windlass.core.errors import InvalidArgumentError, StoreDeniedError
from windlass.core.ids import uuid7
from windlass.server.auth.api_keys import Role
from windlass.server.auth.permissions import ROLE_PERMISSIONS, UNSCOPED_ONLY, Permission
from windlass.settings import DEFAULT_SLOTS
from windlass.store import ServerStore
from windlass.stores import public_url

MIN_JOBS, MAX_JOBS = 10, 200_000
MAX_CONCURRENCY = 1_000
TERMINATED = 128 + signal.SIGTERM
PERCENTILES = (50, 95, 99)
NEEDED = (Permission.WORK, Permission.DELETE)


def bench(
    *,
    jobs: Annotated[
        int, typer.Option(help=f"Jobs to enqueue and drain; at most {MAX_JOBS:,}.")
    ] = 5_000,
    concurrency: Annotated[int, typer.Option(help="Slots of the worker.")] = DEFAULT_SLOTS,
    queue: Annotated[
        str | None, typer.Option(help="An unused queue (default: a new name).")
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast your store is: enqueue rate, drain rate, start latency.

    Writes no-op jobs to the store, into a queue of their own, runs them in
    this process, and deletes them at the end, also after Ctrl-C.
    """
    _check_range("--jobs", jobs, MIN_JOBS, MAX_JOBS)
    _check_range("--concurrency", concurrency, 1, MAX_CONCURRENCY)
    name = queue or f"windlass-bench-{uuid7().hex[-12:]}"
    target, _ = find_store(url, app)  # `open_client` closes the app
    with _progress(quiet=as_json) as report:
        try:
            work = _bench(
                (url, app),
                public_url(target),
                queue=name,
                jobs=jobs,
                concurrency=concurrency,
                report=report,
            )
            found = run(work, fast=True)
        except asyncio.CancelledError:  # by SIGTERM; Ctrl-C is a KeyboardInterrupt
            raise typer.Exit(TERMINATED) from None
    durability = run(store_durability(target))
    if as_json:
        shared = {"store": public_url(target), "durability": durability, "queue": name}
        terminal.print_json(shared | _fields(found, concurrency))
    else:
        _show(found, concurrency, durability)


def _check_range(option: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise InvalidArgumentError(
            f"{option} is {number:,}; it must be between {least:,} and {most:,}"
        )


async def _bench(
    store: tuple[str | None, str | None],
    shown_url: str,
    *,
    queue: str,
    jobs: int,
    concurrency: int,
    report: ReportProgress,
) -> BenchmarkResult:
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with open_client(*store, memory=True) as client:
        await _check_permissions(client)
        benchmark = StoreBenchmark(client, queue, jobs=jobs, concurrency=concurrency, report=report)
        await benchmark.check()
        number = terminal.jobs(jobs)
        terminal.warn(f"writes {number} to {shown_url}, queue {queue}, and deletes them")
        return await benchmark.run()


async def _check_permissions(client: Client) -> None:
    """Raise StoreDeniedError if the key of a server may not run or delete jobs."""
    if not isinstance(client.store, ServerStore):
        return
    from windlass.stores.http import HttpStore  # noqa: PLC0415 - optional package

    assert isinstance(client.store, HttpStore)
    hello = await client.store.hello()
    known = [ROLE_PERMISSIONS[Role(role)] for role in hello.roles if role in set(Role)]
    granted = frozenset[Permission]().union(*known)
    if hello.owner is not None or hello.team is not None:
        granted -= UNSCOPED_ONLY
    if missing := [permission for permission in NEEDED if permission not in granted]:
        names = " and ".join(f"'{permission}'" for permission in missing)
        scope = ", limited to one owner or team" if hello.owner or hello.team else ""
        raise StoreDeniedError(
            f"the benchmark runs and deletes jobs; the key of {hello.name} lacks the permission "
            f"{names} (roles: {', '.join(hello.roles) or 'none'}{scope}). Use a key with the roles "
            "worker and operator, or admin, for all owners and teams"
        )


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[ReportProgress]:
    """Show a bar in a terminal, a line per phase elsewhere."""
    console = terminal.err()
    if quiet or not console.is_terminal:
        last = ""

        def report_line(phase: str, _done: int, total: int) -> None:
            nonlocal last
            if phase != last and not quiet:
                terminal.info(f"{phase}: {terminal.jobs(total)}")
            last = phase

        yield report_line
        return
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        bar = bars.add_task("", total=None)

        def report_bar(phase: str, done: int, total: int) -> None:
            bars.update(bar, description=escape(phase), completed=done, total=total)

        yield report_bar


def _fields(found: BenchmarkResult, concurrency: int) -> dict[str, Any]:
    def fields(figure: Throughput) -> dict[str, Any]:
        return {
            "jobs": figure.jobs,
            "perSecond": figure.per_second,
            "cpuSecondsPerJob": figure.cpu_per_job,
        }

    percentiles = {f"p{percent}": found.percentile(percent) for percent in PERCENTILES}
    return {
        "enqueueSingle": fields(found.single),
        "enqueueBatch": fields(found.batch) | {"batch": found.batch_size},
        "drain": fields(found.drain) | {"concurrency": concurrency},
        "startLatency": {"jobs": len(found.latencies)} | percentiles,
    }


def _show(found: BenchmarkResult, concurrency: int, durability: str | None) -> None:
    console = terminal.out()
    table = terminal.table("", "jobs", "jobs/s", "CPU per job")
    for column in table.columns[1:]:
        column.justify = "right"
    for label, figure in (
        ("enqueue one by one", found.single),
        (f"enqueue {found.batch_size:,} a call", found.batch),
        (f"drain, {concurrency:,} at a time", found.drain),
    ):
        cpu = f"{figure.cpu_per_job * 1e6:,.0f} µs"
        table.add_row(label, f"{figure.jobs:,}", f"{figure.per_second:,.0f}", cpu)
    console.print(table)
    times = ", ".join(f"p{one} {found.percentile(one) * 1e3:.2f} ms" for one in PERCENTILES)
    console.print(f"start latency  {times} ({terminal.jobs(len(found.latencies))}, idle worker)")
    console.print(f"durability     {escape(durability or 'set on the server')}")
    console.print(
        "[dim]One process enqueues and runs no-op jobs; CPU time is that of this process. The jobs "
        "are deleted; their rates per minute stay until the retention of rollups.[/]",
        soft_wrap=True,
    )
