"""The JavaScript client, for pages of ours and of others: where its files are."""

from __future__ import annotations

from pathlib import Path

_INSIDE = Path(__file__).parent / "static" / "js"  # in a wheel
_BESIDE = Path(__file__).parents[3] / "js"  # in a source tree


def folder() -> Path:
    """To be served as it is: `StaticFiles(directory=folder())`; `windlass.js` is the module."""
    return _INSIDE if _INSIDE.exists() else _BESIDE
