"""`windlass migrate`: creates the store or migrates its schema."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client, store_url
from windlass.stores import migration_script, public_url, roles_script

Print = Annotated[
    bool, typer.Option("--print", help="Only print the SQL as one script; do not run it.")
]
Roles = Annotated[
    bool,
    typer.Option(
        "--roles",
        help="Only print SQL for least-privilege roles (PostgreSQL), to run yourself.",
    ),
]


def migrate(
    url: Url = None,
    app: AppPath = None,
    only_print: Print = False,
    roles: Roles = False,
    as_json: AsJson = False,
) -> None:
    """Create the database or update its schema. Safe to repeat."""
    if only_print or roles:
        target = run(store_url(url, app))
        script = roles_script(target) if roles else migration_script(target)
        _print(script, target, as_json=as_json)
        return
    done = run(_migrate(url, app))
    if as_json:
        terminal.print_json({"applied": list(done)})
        return
    console = terminal.out()
    for name in done:
        console.print(f"applied {name}")
    if not done:
        console.print("The schema is up to date")


def _print(script: str, target: str, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"sql": script})
        return
    sys.stdout.write(script)
    if not script:
        terminal.info(f"The schema of {public_url(target)} is up to date; nothing to run")


async def _migrate(url: str | None, app: str | None) -> Sequence[str]:
    async with open_client(url, app, create=True) as client:
        return await client.store.migrate()
