"""`windlass migrate`: make the store, or bring its schema up to date."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run, the_url
from windlass.stores import migration_script, public_url, roles_script

Print = Annotated[
    bool, typer.Option("--print", help="Only print the SQL that would be run, as one script.")
]
Roles = Annotated[
    bool,
    typer.Option(
        "--roles",
        help="Only print the SQL of least-privilege roles (PostgreSQL), to be run by you.",
    ),
]


def migrate(
    url: Url = None,
    app: AppPath = None,
    only_print: Print = False,
    roles: Roles = False,
    as_json: AsJson = False,
) -> None:
    """Make the store, or bring its schema up to date. Harmless to repeat."""
    if only_print or roles:
        place = run(the_url(url, app))
        script = roles_script(place) if roles else migration_script(place)
        _print(script, place, as_json=as_json)
        return
    done = run(_migrate(url, app))
    if as_json:
        terminal.print_json({"applied": list(done)})
        return
    console = terminal.out()
    for name in done:
        console.print(f"applied {name}")
    if not done:
        console.print("the schema is up to date")


def _print(script: str, place: str, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"sql": script})
        return
    sys.stdout.write(script)
    if not script:
        terminal.say(f"the schema of {public_url(place)} is up to date: there is nothing to run")


async def _migrate(url: str | None, app: str | None) -> Sequence[str]:
    async with opened(url, app, make=True) as client:
        return await client.store.migrate()
