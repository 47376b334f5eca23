"""Which release of Windlass this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    try:
        return importlib.metadata.version("windlass")
    except importlib.metadata.PackageNotFoundError:
        return "0"  # run from a source tree
