"""Named blocks of a `queries.sql`, loaded into a typed object.

A block starts with `-- name: x`; the comment lines below it explain the query. A name without a
field, or a field without a query, raises an error when the store is imported. So does an unknown
placeholder: `{columns}` stands for text of the store, such as the columns of a job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{([a-z][\w.]*(?:\[\])?)\}")


def parse(text: str) -> dict[str, str]:
    parts = _NAME.split(text)[1:]
    blocks: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in blocks:
            raise ValueError(f"duplicate query name {name!r}")
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        blocks[name] = "\n".join(line for line in lines if line.strip())
    return blocks


def fill(sql: str, placeholders: Mapping[str, str]) -> str:
    """Replace the placeholders of a statement."""
    return _PLACEHOLDER.sub(lambda match: placeholders[match[1]], sql)


def load(
    package: str,
    cls: type[T],
    resource: str = "queries.sql",
    *,
    placeholders: Mapping[str, str] | None = None,
) -> T:
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is not a dataclass")
    texts = placeholders or {}
    blocks = parse(files(package).joinpath(resource).read_text("utf-8"))
    if unknown := set(_PLACEHOLDER.findall("".join(blocks.values()))) - texts.keys():
        raise ValueError(f"{package}/{resource} has unknown placeholders: {sorted(unknown)}")
    expected = {item.name for item in fields(cls)}
    if missing := expected - blocks.keys():
        raise ValueError(f"{package}/{resource} lacks queries: {', '.join(sorted(missing))}")
    if unused := blocks.keys() - expected:
        raise ValueError(f"{package}/{resource} has unused queries: {', '.join(sorted(unused))}")
    return cls(**{name: fill(sql, texts) for name, sql in blocks.items()})
