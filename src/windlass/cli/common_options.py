"""Options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="URL of the store: sqlite:///jobs.db, postgresql://host/database, https://server.",
    ),
]
AppPath = Annotated[str | None, typer.Option("--app", "-A", help="The app, as module:app.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
JobId = Annotated[str, typer.Argument(help="Job id, or its first or last characters.")]
JobIds = Annotated[list[str], typer.Argument(help="Job ids, or their first or last characters.")]
