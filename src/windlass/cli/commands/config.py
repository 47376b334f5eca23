"""`windlass config show`: each setting and its origin."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.settings import SettingValue, load_settings
from windlass.stores import public_url

HIDDEN = "***"
commands = typer.Typer(no_args_is_help=True, help="Show the settings.")


@commands.callback()
def config() -> None:
    """Show the settings."""


@commands.command()
def show(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Show each setting and its origin."""
    found = load_settings({"url": url, "app": app})
    if as_json:
        values = {
            setting.name: {"value": _redacted(setting), "origin": setting.origin}
            for setting in found
        }
        terminal.print_json(values)
        return
    console = terminal.out()
    width = max(len(setting.name) for setting in found)
    for setting in found:
        value = escape(_format(setting.name, _redacted(setting)))
        line = f"{setting.name:<{width}} {value}  [dim]← {escape(setting.origin)}[/]"
        console.print(line, soft_wrap=True)


def _redacted(setting: SettingValue) -> Any:
    """Return the value without passwords and keys."""
    if setting.name == "key" and setting.value is not None:
        return HIDDEN
    return public_url(setting.value) if isinstance(setting.value, str) else setting.value


def _format(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ",".join(key if n is None else f"{key}={n}" for key, n in value.items())
    if name.startswith("keep_"):
        return duration(value) if value else "forever"
    return duration(value) if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Format a duration as in a setting: in the largest unit without a remainder."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
