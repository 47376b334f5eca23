"""The installed version of Windlass."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """Return the version of the installed package; "0" when it runs from a source tree."""
    try:
        return importlib.metadata.version("windlass")
    except importlib.metadata.PackageNotFoundError:
        return "0"
