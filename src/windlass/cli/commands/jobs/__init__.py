"""`windlass jobs`: list, follow and manage jobs."""

from __future__ import annotations

import typer

from windlass.cli.commands.jobs import actions, job_list, send_signal, show, watch, why

commands = typer.Typer(no_args_is_help=True, help="List, follow and manage jobs.")
commands.command("list")(job_list.list_jobs)
commands.command("show")(show.show)
commands.command("watch")(watch.watch)
commands.command("logs")(watch.logs)
commands.command("signal")(send_signal.signal)
commands.command("submit")(actions.submit)
commands.command("cancel")(actions.cancel)
commands.command("retry")(actions.retry)
commands.command("resume")(actions.resume)
commands.command("delete")(actions.delete)
commands.command("why")(why.why)
