"""The command line: one module or folder per command, in `commands`."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from windlass.cli import terminal
from windlass.cli.commands import (
    bench,
    check,
    config,
    dev,
    enqueue,
    flows,
    jobs,
    keys,
    limits,
    migrate,
    queues,
    schedules,
    serve,
    worker,
    workers,
)
from windlass.core.errors import WindlassError
from windlass.core.version import version

HELP = """Durable background jobs for Python.

Exit codes: 0 success; 1 failure (a job failed or was not found);
2 invalid command or setting; 3 store unavailable; 130 interrupted
by Ctrl-C.

Settings: options, then WINDLASS_… variables, then windlass.toml
(windlass config show lists each value and its origin).
"""


class _Commands(TyperGroup):
    """Prints every WindlassError as one message and sets the exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            terminal.error(str(error))
            raise typer.Exit(terminal.exit_code(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


# Below this width, the help tables of rich cut the names of options.
NARROW_HELP_WIDTH = 60

cli = typer.Typer(
    name="windlass",
    help=HELP,
    cls=_Commands,
    rich_markup_mode="rich" if get_terminal_size().columns >= NARROW_HELP_WIDTH else None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        terminal.out().print(f"windlass {version()}")
        raise typer.Exit


@cli.callback(help=HELP)
def _global_options(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None: ...


cli.command("dev")(dev.dev)
cli.command("worker")(worker.worker)
cli.command("serve")(serve.serve)
cli.command("enqueue")(enqueue.enqueue)
cli.add_typer(jobs.commands, name="jobs")
cli.add_typer(flows.commands, name="flows")
cli.add_typer(queues.commands, name="queues")
cli.add_typer(limits.commands, name="limits")
cli.add_typer(schedules.commands, name="schedules")
cli.add_typer(workers.commands, name="workers")
cli.add_typer(keys.commands, name="keys")
cli.command("migrate")(migrate.migrate)
cli.command("check")(check.check)
cli.command("bench")(bench.bench)
cli.add_typer(config.commands, name="config")


def main() -> None:
    terminal.replace_unencodable()
    cli()
