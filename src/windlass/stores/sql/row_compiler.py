"""Compiler of row codecs: one function per direction, made from the table of columns at import.

A loop over 64 columns with a call per value takes ten times as long as one expression, and named
arguments cost 2 µs more per row than positional ones. So a codec is generated as source and
compiled: `exec` runs once per function, on text that only this package writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from windlass.stores.sql.job_columns import Coding, Column

T = TypeVar("T")
_SHORTEST_SLICE = 8  # shorter ones are slower than single values (measured 2026-11)


@dataclass(frozen=True, slots=True)
class Expressions:
    """Python expressions of values, by column or else by coding; others are stored as they are.

    `{0}` stands for the value, `{error_body}` for that of another column. `names` are the functions
    and values that expressions use.
    """

    by_coding: Mapping[Coding, str]
    names: Mapping[str, Any]
    by_column: Mapping[str, str]

    def of(self, column: Column, values: Mapping[str, str]) -> str:
        """Return the expression of a column; `values` are expressions of all columns, by name."""
        template = self.by_column.get(column.name) or self.by_coding.get(column.coding, "{0}")
        return template.format(values[column.name], **values)


def compile_decoder(
    make: type[T],
    columns: Sequence[Column],
    expressions: Expressions,
    *,
    more: str = "",
    is_tuple: bool = True,
) -> Callable[..., T]:
    """Return a function that builds a value of a dataclass from a row with these columns.

    Its parameters are the row, whose further columns it ignores, and `more`. Rows that are no
    tuples are converted first: their items take longer to read. A generated function:

        def decode(row, other_payload=None):
            return make(to_uuid(row[0]), row[1], …, states[row[5]], *row[14:36], …)
    """
    indexes = {column.name: index for index, column in enumerate(columns)}
    values = {name: f"row[{index}]" for name, index in indexes.items()}
    by_field = {column.row_field: column for column in reversed(columns)}
    arguments: list[str] = []
    run: list[int] = []  # consecutive columns whose values are passed as they are
    for item in fields(make):  # type: ignore[arg-type]
        column = by_field[item.name]
        index = indexes[column.name]
        argument = expressions.of(column, values)
        plain = argument == values[column.name]
        if run and (not plain or index != run[-1] + 1):
            arguments += _arguments(run)
            run = []
        if plain:
            run.append(index)
        else:
            arguments.append(argument)
    arguments += _arguments(run)
    convert = "" if is_tuple else "    row = tuple(row)\n"
    return _compile(
        f"def compiled(row, {more}):\n{convert}    return make({', '.join(arguments)})\n",
        {**expressions.names, "make": make},
    )


def _arguments(indexes: list[int]) -> list[str]:
    if len(indexes) < _SHORTEST_SLICE:
        return [f"row[{index}]" for index in indexes]
    return [f"*row[{indexes[0]}:{indexes[-1] + 1}]"]


def compile_encoder(
    columns: Sequence[Column], expressions: Expressions, field_of: Callable[[Column], str]
) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that encodes fields of an object as a row with these columns.

    def encode(given):
        return (given.id.bytes, given.queue, …,)
    """  # fmt: skip
    values = {column.name: f"given.{field_of(column)}" for column in columns}
    encoded = ", ".join(expressions.of(column, values) for column in columns)
    return _compile(f"def compiled(given):\n    return ({encoded},)\n", dict(expressions.names))


def _compile(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(compile(source, "<row codec>", "exec"), names)  # noqa: S102
    compiled: Callable[..., Any] = names["compiled"]
    return compiled
