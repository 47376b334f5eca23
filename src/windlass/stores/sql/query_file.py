"""Named blocks of a `queries.sql`, loaded into a typed object.

A block starts with `-- name: x`; the comment lines below it say why it is as it is. A name that the
object does not expect, or one that it misses, fails when the store is imported.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def parse(text: str) -> dict[str, str]:
    pieces = _NAME.split(text)[1:]
    blocks: dict[str, str] = {}
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        if name in blocks:
            raise ValueError(f"the query {name!r} is named twice")
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        blocks[name] = "\n".join(line for line in lines if line.strip())
    return blocks


def load(package: str, kind: type[T], resource: str = "queries.sql") -> T:
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass")
    blocks = parse(files(package).joinpath(resource).read_text("utf-8"))
    expected = {item.name for item in fields(kind)}
    if missing := expected - blocks.keys():
        raise ValueError(f"{package}/{resource} lacks: {', '.join(sorted(missing))}")
    if unused := blocks.keys() - expected:
        raise ValueError(f"{package}/{resource} has unused: {', '.join(sorted(unused))}")
    return kind(**blocks)
