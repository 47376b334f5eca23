"""`windlass jobs why`: what keeps a job from running, and what to do about it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, JobId, Url, opened, run, which
from windlass.core.query.diagnosis import Reason, Why


def why(job: JobId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Say why a job is not running, or not any more: every reason that holds."""
    answer = run(_ask(job, url, app))
    if as_json:
        terminal.print_json(_facts(answer))
        return
    console = terminal.out()
    console.print(f"[bold]{answer.job_id}[/] {terminal.state(answer.state)}", soft_wrap=True)
    for reason in answer.reasons:
        when = f" [dim]({terminal.ago(reason.at)})[/]" if reason.at is not None else ""
        _line(console, f"{escape(reason.text)}{when}", 2)
        if reason.advice is not None:
            _line(console, f"→ {escape(reason.advice)}", 4)


def _line(console: Console, text: str, indent: int) -> None:
    """Broken between words, for people; but a command to be copied stays whole."""
    if console.is_terminal and "windlass " not in text:
        console.print(Padding(text, (0, 0, 0, indent)))
    else:
        console.print(" " * indent + text, soft_wrap=True)


async def _ask(job: str, url: str | None, app: str | None) -> Why:
    async with opened(url, app) as client:
        return await client.why(await which(client, job))


def _facts(answer: Why) -> dict[str, Any]:
    return {
        "id": str(answer.job_id),
        "state": answer.state.value,
        "reasons": [_reason(one) for one in answer.reasons],
    }


def _reason(one: Reason) -> dict[str, Any]:
    return {
        "because": one.because.value,
        "text": one.text,
        "at": terminal.iso(one.at),
        "advice": one.advice,
    }
