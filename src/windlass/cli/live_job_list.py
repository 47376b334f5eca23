"""Live list of jobs: a progress bar for each active job, a line for each finished one.

Waits for: its refresh interval. Guarantees: an active job is followed to its end and reported once.
Stops: when cancelled, after a last refresh. Only reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from windlass.cli import terminal
from windlass.cli.job_format import error_fields
from windlass.client import Client
from windlass.core.clock import SECOND
from windlass.core.errors import StoreError
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery

REFRESH_INTERVAL = 0.25  # seconds
NEWEST = 20  # jobs read per refresh
MAX_BARS = 12


class LiveJobList:
    """Shows active jobs as bars and finished ones as lines; `footer` is below the bars."""

    def __init__(self, client: Client, footer: str) -> None:
        self._client = client
        self._footer = footer
        self._console = terminal.out()
        self._active: dict[UUID, JobRow] = {}
        self._ended: set[UUID] = set()
        self._live: Live | None = None

    @contextlib.asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        """Show jobs while the block runs."""
        page = await self._client.store.find(JobQuery(limit=NEWEST))
        self._ended = {row.id for row in page.rows if row.final}  # finished before the view started
        with self._region():
            refreshing = asyncio.create_task(self._run())
            try:
                yield
            finally:
                refreshing.cancel()
                await asyncio.wait({refreshing})
                with contextlib.suppress(StoreError):
                    await self._refresh()
                if self._live is not None:
                    self._live.update("")

    def print(self, message: str) -> None:
        """Print above the bars; thread-safe."""
        self._console.print(escape(message), soft_wrap=True)

    def _region(self) -> contextlib.AbstractContextManager[object]:
        if not self._console.is_terminal:
            return contextlib.nullcontext()
        self._live = Live("", console=self._console, refresh_per_second=8)
        return self._live

    async def _run(self) -> None:
        while True:
            # The worker logs the error; the next refresh may succeed.
            with contextlib.suppress(StoreError):
                await self._refresh()
            await asyncio.sleep(REFRESH_INTERVAL)

    async def _refresh(self) -> None:
        store = self._client.store
        newest = await store.find(JobQuery(limit=NEWEST))
        rows = {row.id: row for row in newest.rows}
        older = [job for job in self._active if job not in rows]
        rows |= {row.id: row for row in await store.get(older) if row is not None}
        previous, self._active = self._active, {}
        for row in sorted(rows.values(), key=lambda row: row.serial):
            if not row.final:
                self._active[row.id] = row
                self._print_change(previous.get(row.id), row)
            elif row.id not in self._ended:
                self._ended.add(row.id)
                self._console.print(self._line(row) + self._outcome(row), soft_wrap=True)
        if self._live is not None:
            self._live.update(self._bars(self._console))

    def _print_change(self, previous: JobRow | None, row: JobRow) -> None:
        """Without bars, print each new state as a line."""
        if self._live is None and (previous is None or previous.state is not row.state):
            self._console.print(self._line(row), soft_wrap=True)

    def _line(self, row: JobRow) -> str:
        if self._console.width < terminal.NARROW_WIDTH:
            return f"{terminal.state(row.state)} {escape(row.task)} [dim]…{str(row.id)[-6:]}[/]"
        when = f"[dim]{terminal.clock(row.updated_at)}[/]"
        return f"{when} {terminal.state(row.state)} {escape(row.task)} [dim]{row.id}[/]"

    def _outcome(self, row: JobRow) -> str:
        """Return the duration and the error, if any."""
        text = ""
        if row.ended_at is not None and row.first_started_at is not None:
            text = f" after {terminal.span((row.ended_at - row.first_started_at) / SECOND)}"
        if row.state is State.FAILED and row.error is not None:
            message = error_fields(self._client, row.error).get("message") or ""
            text += f"; {row.error.code}: {message}".rstrip(": ")
        return escape(text)

    def _bars(self, console: Console) -> RenderableType:
        table = Table.grid(expand=True, padding=(0, 1, 0, 0))
        for _ in range(2):
            table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True)
        wide = console.width >= terminal.NARROW_WIDTH
        rows = sorted(self._active.values(), key=lambda row: row.state is not State.RUNNING)
        for row in rows[:MAX_BARS]:
            name = f"{row.task} {str(row.id)[-6:]}" if wide else row.task
            note = f"{row.percent}% {row.stage or ''}" if wide else f"{row.percent}%"
            bar = ProgressBar(total=100, completed=row.percent)
            table.add_row(terminal.state(row.state), escape(name), bar, escape(note.rstrip()))
        more = f"{len(rows) - MAX_BARS} more · " if len(rows) > MAX_BARS else ""
        return Group(table, f"[dim]{more}{escape(self._footer)}[/]", "")
