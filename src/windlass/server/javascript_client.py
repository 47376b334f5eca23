"""Location of the JavaScript client's files."""

from __future__ import annotations

from pathlib import Path

_IN_WHEEL = Path(__file__).parent / "static" / "js"
_IN_SOURCE_TREE = Path(__file__).parents[3] / "js"


def folder() -> Path:
    """Return the folder: serve `StaticFiles(directory=folder())`, and import `windlass.js`."""
    return _IN_WHEEL if _IN_WHEEL.exists() else _IN_SOURCE_TREE
