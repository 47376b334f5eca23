"""`windlass queues`: list, pause, resume, drain and clear queues."""

from __future__ import annotations

import typer

from windlass.cli.commands.queues import actions, drain, queue_list

commands = typer.Typer(no_args_is_help=True, help="List, pause, resume, drain and clear queues.")
commands.command("drain")(drain.drain)
commands.command("list")(queue_list.list_queues)
commands.command("pause")(actions.pause)
commands.command("resume")(actions.resume)
commands.command("clear")(actions.clear)
