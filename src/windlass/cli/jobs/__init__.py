"""`windlass jobs`: look at jobs, follow them, act on them."""

from __future__ import annotations

import typer

from windlass.cli.jobs import acting, listing, showing, signaling, watching, why

commands = typer.Typer(no_args_is_help=True, help="Look at jobs, follow them, act on them.")
commands.command("list")(listing.list_jobs)
commands.command("show")(showing.show)
commands.command("watch")(watching.watch)
commands.command("logs")(watching.logs)
commands.command("signal")(signaling.signal)
commands.command("submit")(acting.submit)
commands.command("cancel")(acting.cancel)
commands.command("retry")(acting.retry)
commands.command("resume")(acting.resume)
commands.command("delete")(acting.delete)
commands.command("why")(why.why)
