"""The command line: one file per command, gathered here."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from windlass.cli import jobs
from windlass.cli.commands import (
    bench,
    check,
    config,
    dev,
    enqueue,
    flows,
    keys,
    limits,
    migrate,
    queues,
    schedules,
    serve,
    worker,
    workers,
)
from windlass.cli.terminal import complain, exit_code, forgive
from windlass.core.errors import WindlassError

HELP = """Durable jobs: never lost, never finished twice, visible while they run.

Exit codes: 0 done; 1 the answer is no (a job failed, there is none);
2 the command or a setting is wrong; 3 the store cannot be reached;
130 stopped by Ctrl-C.

Settings: arguments, then WINDLASS_… variables, then windlass.toml
(windlass config show tells which is which).
"""


class _Commands(TyperGroup):
    """Every error that Windlass knows becomes one plain message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            complain(str(error))
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


cli = typer.Typer(
    name="windlass",
    help=HELP,
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    forgive()
    cli()
