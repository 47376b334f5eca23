"""`windlass migrate`: make the store, or bring its schema up to date."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.cli import terminal
from windlass.cli.opening import AppPath, AsJson, Url, opened, run


def migrate(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Make the store, or bring its schema up to date. Harmless to repeat."""
    done = run(_migrate(url, app))
    if as_json:
        terminal.print_json({"applied": list(done)})
        return
    console = terminal.out()
    for name in done:
        console.print(f"applied {name}")
    if not done:
        console.print("the schema is up to date")


async def _migrate(url: str | None, app: str | None) -> Sequence[str]:
    async with opened(url, app, make=True) as client:
        return await client.store.migrate()
