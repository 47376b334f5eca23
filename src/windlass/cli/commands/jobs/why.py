"""`windlass jobs why`: why a job is not running, and what to do about it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, JobId, Url
from windlass.cli.event_loop import run
from windlass.cli.job_lookup import find_job
from windlass.cli.store_connection import open_client
from windlass.core.diagnosis import Diagnosis
from windlass.schemas.diagnosis import DiagnosisView


def why(job: JobId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Explain why a job is not running: lists every reason."""
    diagnosis = run(_diagnose(job, url, app))
    if as_json:
        terminal.print_json(DiagnosisView.of(diagnosis).to_json())
        return
    console = terminal.out()
    console.print(f"[bold]{diagnosis.job_id}[/] {terminal.state(diagnosis.state)}", soft_wrap=True)
    for reason in diagnosis.reasons:
        when = f" [dim]({terminal.ago(reason.at)})[/]" if reason.at is not None else ""
        _print(console, f"{escape(reason.text)}{when}", 2)
        if reason.advice is not None:
            _print(console, f"→ {escape(reason.advice)}", 4)


def _print(console: Console, text: str, indent: int) -> None:
    """Print wrapped text; lines with a command to copy are not wrapped."""
    if console.is_terminal and "windlass " not in text:
        console.print(Padding(text, (0, 0, 0, indent)))
    else:
        console.print(" " * indent + text, soft_wrap=True)


async def _diagnose(job: str, url: str | None, app: str | None) -> Diagnosis:
    async with open_client(url, app) as client:
        return await client.why(await find_job(client, job))
