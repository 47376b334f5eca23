"""Table of the figures: a row per side, with our figure as a multiple of each."""

from __future__ import annotations

from rich.table import Table

from windlass.bench.peers import OURS
from windlass.bench.results import FIGURES, Figure, Result
from windlass.cli import terminal
from windlass.cli.bench_table import show_notes


def show(result: Result) -> None:
    figures = [
        figure
        for figure in FIGURES
        if any(side.values(figure.key) for side in result.sides.values())
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for figure in figures:
        table.add_column(f"{figure.label}\n{figure.unit}", justify="right")
    table.add_column("synced")
    for name, side in result.sides.items():
        cells = [_cell(result, figure, name) for figure in figures]
        table.add_row(f"[bold]{name}[/]", *cells, side.synced)
    terminal.out().print(table)
    show_notes(result)


def _cell(result: Result, figure: Figure, name: str) -> str:
    value = result.sides[name].median(figure.key)
    if value is None:
        return "[dim]-[/]"
    ratio = None if name == OURS else result.ratio(figure.key, name)
    return f"{value:,.{figure.digits}f}\n[dim]{'' if ratio is None else f'{ratio:.2f}x'}[/]"
