"""Jobs as they run: a bar for each that is under way, a line for each that has ended.

Waits for: a moment between two looks. Guarantees: a job that was seen under way is followed to its
end, and told once. Stops: when cancelled, after a last look. It only reads.
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

from windlass.cli import job_format, terminal
from windlass.client import Client
from windlass.core.clock import SECOND
from windlass.core.errors import StoreError
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import Query

LOOK = 0.25  # seconds
NEWEST = 20
ROWS = 12


class View:
    """`footer` stands below the bars."""

    def __init__(self, client: Client, footer: str) -> None:
        self._client = client
        self._footer = footer
        self._console = terminal.out()
        self._active: dict[UUID, JobRow] = {}
        self._ended: set[UUID] = set()
        self._live: Live | None = None

    @contextlib.asynccontextmanager
    async def showing(self) -> AsyncIterator[None]:
        """Show what happens as long as the block runs."""
        page = await self._client.store.find(Query(limit=NEWEST))
        self._ended = {row.id for row in page.rows if row.final}  # before our time
        with self._region():
            looking = asyncio.create_task(self._run())
            try:
                yield
            finally:
                looking.cancel()
                await asyncio.wait({looking})
                with contextlib.suppress(StoreError):
                    await self._look()
                if self._live is not None:
                    self._live.update("")

    def say(self, message: str) -> None:
        """Above the bars, from any thread."""
        self._console.print(escape(message), soft_wrap=True)

    def _region(self) -> contextlib.AbstractContextManager[object]:
        if not self._console.is_terminal:
            return contextlib.nullcontext()
        self._live = Live("", console=self._console, refresh_per_second=8)
        return self._live

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(StoreError):  # the worker says so; the next look may do
                await self._look()
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        store = self._client.store
        newest = await store.find(Query(limit=NEWEST))
        rows = {row.id: row for row in newest.rows}
        known = [job for job in self._active if job not in rows]
        rows |= {row.id: row for row in await store.get(known) if row is not None}
        before, self._active = self._active, {}
        for row in sorted(rows.values(), key=lambda row: row.serial):
            if not row.final:
                self._active[row.id] = row
                self._tell_move(before.get(row.id), row)
            elif row.id not in self._ended:
                self._ended.add(row.id)
                self._console.print(self._line(row) + self._end(row), soft_wrap=True)
        if self._live is not None:
            self._live.update(self._bars(self._console))

    def _tell_move(self, before: JobRow | None, row: JobRow) -> None:
        """Where there are no bars, each new state is a line."""
        if self._live is None and (before is None or before.state is not row.state):
            self._console.print(self._line(row), soft_wrap=True)

    def _line(self, row: JobRow) -> str:
        if self._console.width < terminal.NARROW:
            return f"{terminal.state(row.state)} {escape(row.task)} [dim]…{str(row.id)[-6:]}[/]"
        when = f"[dim]{terminal.clock(row.updated_at)}[/]"
        return f"{when} {terminal.state(row.state)} {escape(row.task)} [dim]{row.id}[/]"

    def _end(self, row: JobRow) -> str:
        """How long it took, and what was wrong."""
        said = ""
        if row.ended_at is not None and row.first_started_at is not None:
            said = f" after {terminal.span((row.ended_at - row.first_started_at) / SECOND)}"
        error = job_format.error(self._client, row.error)
        if row.state is State.FAILED and error is not None:
            said += f"; {error['code']}: {error.get('message') or ''}".rstrip(": ")
        return escape(said)

    def _bars(self, console: Console) -> RenderableType:
        table = Table.grid(expand=True, padding=(0, 1, 0, 0))
        for _ in range(2):
            table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True)
        wide = console.width >= terminal.NARROW
        rows = sorted(self._active.values(), key=lambda row: row.state is not State.RUNNING)
        for row in rows[:ROWS]:
            name = f"{row.task} {str(row.id)[-6:]}" if wide else row.task
            note = f"{row.percent}% {row.stage or ''}" if wide else f"{row.percent}%"
            bar = ProgressBar(total=100, completed=row.percent)
            table.add_row(terminal.state(row.state), escape(name), bar, escape(note.rstrip()))
        more = f"{len(rows) - ROWS} more · " if len(rows) > ROWS else ""
        return Group(table, f"[dim]{more}{escape(self._footer)}[/]", "")
