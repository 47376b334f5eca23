"""Tables of `windlass bench`."""

from __future__ import annotations

from rich.markup import escape

from windlass.bench.peers import OURS
from windlass.bench.plan import BULK, Plan
from windlass.bench.results import FIGURES, Figure, Result, SideResult, Target
from windlass.bench.side import PAYLOAD
from windlass.cli import terminal

_VERDICTS = {
    True: "[green]reached[/]",
    False: "[yellow]not reached[/]",
    None: "[dim]not measured[/]",
}


def show(result: Result) -> None:
    table = terminal.table("", *result.sides)
    for column in table.columns[1:]:
        column.justify = "right"
    for figure in FIGURES:
        if any(side.values(figure.key) for side in result.sides.values()):
            cells = [_cell(result, figure, name) for name in result.sides]
            table.add_row(f"{figure.label} [dim]{figure.unit}[/]", *cells)
    terminal.out().print(table)
    show_notes(result)


def show_notes(result: Result) -> None:
    """Print the notes below the figures: method, targets, systems."""
    plan, machine = result.plan, result.machine
    terminal.out().print(
        f"[dim]x: Windlass relative to this system. {_method(plan)} "
        f"{machine['cores']} cores, Python {machine['python']}, uvloop {machine['uvloop'] or 'no'}."
        f"{' Quick run: not representative.' if plan.quick else ''}[/]\n"
    )
    _show_targets(result.targets())
    _show_sides(result)


def _method(plan: Plan) -> str:
    rounds = "One round" if plan.rounds == 1 else f"Medians of {plan.rounds} rounds"
    parts = [f"{rounds}; no-op jobs of {PAYLOAD} bytes"]
    if plan.throughput:
        parts.append(f"{plan.total:,} per drain, {BULK:,} per bulk call")
    if plan.waiting:
        parts.append(f"a worker idle for {plan.pause:g} s, then jobs every {plan.gap:g} s")
    return "; ".join(parts) + "."


def _cell(result: Result, figure: Figure, name: str) -> str:
    value = result.sides[name].median(figure.key)
    if value is None:
        return "[dim]-[/]"
    ratio = None if name == OURS else result.ratio(figure.key, name)
    beside = "" if name == OURS else f" [dim]{'' if ratio is None else _times(ratio):>6}[/]"
    return f"{value:,.{figure.digits}f}{beside}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2f}x"


def _show_targets(targets: list[Target]) -> None:
    if not targets:
        return
    table = terminal.table("target", "result", "")
    table.columns[1].justify = "right"
    for target in targets:
        result = "-" if target.value is None else f"{target.value:.2f} {target.unit}"
        table.add_row(target.text, result, _VERDICTS[target.reached])
    terminal.out().print(table)


def _show_sides(result: Result) -> None:
    console = terminal.out()
    console.print()
    for name, side in result.sides.items():
        bulk = f"; bulk: {side.bulk}" if side.bulk else "; no bulk call"
        console.print(f"[bold]{name}[/] {side.version or ''}: {escape(side.durability + bulk)}")
        console.print(f"  {_health(side)}")
    for name, reason in result.skipped.items():
        console.print(f"[bold]{name}[/] skipped: {escape(reason)}")


def _health(side: SideResult) -> str:
    if not side.problems:
        return "[green]every job ran exactly once[/]"
    return f"[red]{escape('; '.join(dict.fromkeys(side.problems)))}[/]"
