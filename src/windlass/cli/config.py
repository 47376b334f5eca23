"""`windlass config show`: each setting, with who set it."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.opening import AppPath, AsJson, Url
from windlass.config import settings

commands = typer.Typer(no_args_is_help=True, help="See the settings.")


@commands.callback()
def config() -> None:
    """See the settings."""


@commands.command()
def show(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Show each setting, with its origin."""
    found = settings({"url": url, "app": app})
    if as_json:
        terminal.print_json({one.name: {"value": one.value, "origin": one.origin} for one in found})
        return
    console = terminal.out()
    for one in found:
        line = f"{one.name:<12} {escape(_plain(one.value))}  [dim]← {escape(one.origin)}[/]"
        console.print(line, soft_wrap=True)


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ",".join(name if n is None else f"{name}={n}" for name, n in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
