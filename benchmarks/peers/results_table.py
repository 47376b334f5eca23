"""Tables of a comparison, and the notes below them: method, targets, systems."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from benchmarks.peers import WINDLASS
from benchmarks.peers.plan import BULK_SIZE, Plan
from benchmarks.peers.queue_adapter import PAYLOAD_SIZE
from benchmarks.peers.results import FIGURES, ComparisonResult, Figure, SystemResult
from benchmarks.peers.targets import TargetResult
from windlass.cli import terminal

_VERDICTS = {
    True: "[green]reached[/]",
    False: "[yellow]not reached[/]",
    None: "[dim]not measured[/]",
}


def show_columns(result: ComparisonResult) -> None:
    """Print a column per system: for few systems."""
    table = terminal.table("", *result.systems)
    for column in table.columns[1:]:
        column.justify = "right"
    for figure in FIGURES:
        if any(system.values(figure.key) for system in result.systems.values()):
            cells = [_column_cell(result, figure, name) for name in result.systems]
            table.add_row(f"{figure.label} [dim]{figure.unit}[/]", *cells)
    terminal.out().print(table)
    _show_notes(result)


def show_rows(result: ComparisonResult) -> None:
    """Print a row per system, with the time of a sync: for many systems."""
    figures = [
        figure
        for figure in FIGURES
        if any(system.values(figure.key) for system in result.systems.values())
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for figure in figures:
        table.add_column(f"{figure.label}\n{figure.unit}", justify="right")
    table.add_column("synced")
    for name, system in result.systems.items():
        cells = [_row_cell(result, figure, name) for figure in figures]
        table.add_row(f"[bold]{name}[/]", *cells, system.synced)
    terminal.out().print(table)
    _show_notes(result)


def _show_notes(result: ComparisonResult) -> None:
    """Print the notes below the figures: method, targets, systems."""
    plan, machine = result.plan, result.machine
    terminal.out().print(
        f"[dim]x: Windlass relative to this system. {_method(plan)} "
        f"{machine['cores']} cores, Python {machine['python']}, uvloop {machine['uvloop'] or 'no'}."
        f"{' Quick run: not representative.' if plan.quick else ''}[/]\n"
    )
    _show_targets(result.target_results())
    _show_systems(result)


def _method(plan: Plan) -> str:
    rounds = "One round" if plan.rounds == 1 else f"Medians of {plan.rounds} rounds"
    parts = [f"{rounds}; no-op jobs of {PAYLOAD_SIZE} bytes"]
    if plan.measures_throughput:
        parts.append(f"{plan.total:,} per drain, {BULK_SIZE:,} per bulk call")
    if plan.measures_idle_worker:
        parts.append(f"a worker idle for {plan.pause:g} s, then jobs every {plan.gap:g} s")
    return "; ".join(parts) + "."


def _value(result: ComparisonResult, figure: Figure, name: str) -> str | None:
    value = result.systems[name].median(figure.key)
    return None if value is None else f"{value:,.{figure.digits}f}"


def _column_cell(result: ComparisonResult, figure: Figure, name: str) -> str:
    value = _value(result, figure, name)
    if value is None:
        return "[dim]-[/]"
    if name == WINDLASS:
        return value
    ratio = result.ratio(figure.key, name)
    return f"{value} [dim]{'' if ratio is None else _times(ratio):>6}[/]"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2f}x"


def _row_cell(result: ComparisonResult, figure: Figure, name: str) -> str:
    value = _value(result, figure, name)
    if value is None:
        return "[dim]-[/]"
    ratio = None if name == WINDLASS else result.ratio(figure.key, name)
    return f"{value}\n[dim]{'' if ratio is None else f'{ratio:.2f}x'}[/]"


def _show_targets(targets: list[TargetResult]) -> None:
    if not targets:
        return
    table = terminal.table("target", "result", "")
    table.columns[1].justify = "right"
    for target in targets:
        result = "-" if target.value is None else f"{target.value:.2f} {target.unit}"
        table.add_row(target.text, result, _VERDICTS[target.reached])
    terminal.out().print(table)


def _show_systems(result: ComparisonResult) -> None:
    console = terminal.out()
    console.print()
    for name, system in result.systems.items():
        bulk = f"; bulk: {system.bulk}" if system.bulk else "; no bulk call"
        console.print(f"[bold]{name}[/] {system.version or ''}: {escape(system.durability + bulk)}")
        console.print(f"  {_health(system)}")
    for name, reason in result.skipped.items():
        console.print(f"[bold]{name}[/] skipped: {escape(reason)}")


def _health(system: SystemResult) -> str:
    if not system.problems:
        return "[green]every job ran exactly once[/]"
    return f"[red]{escape('; '.join(dict.fromkeys(system.problems)))}[/]"
