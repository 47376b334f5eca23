"""Table of the figures: a row per system, with the figure of Windlass divided by each."""

from __future__ import annotations

from rich.table import Table

from windlass.bench.adapters import WINDLASS
from windlass.bench.results import FIGURES, ComparisonResult, Figure
from windlass.cli import terminal
from windlass.cli.bench_table import show_notes


def show(result: ComparisonResult) -> None:
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
        cells = [_cell(result, figure, name) for figure in figures]
        table.add_row(f"[bold]{name}[/]", *cells, system.synced)
    terminal.out().print(table)
    show_notes(result)


def _cell(result: ComparisonResult, figure: Figure, name: str) -> str:
    value = result.systems[name].median(figure.key)
    if value is None:
        return "[dim]-[/]"
    ratio = None if name == WINDLASS else result.ratio(figure.key, name)
    return f"{value:,.{figure.digits}f}\n[dim]{'' if ratio is None else f'{ratio:.2f}x'}[/]"
