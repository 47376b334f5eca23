"""Starts `windlass.bench.child.roles` without importing the rest of Windlass into a peer's process.

Run as a script. It replaces the package `windlass` by an empty one with the same modules, so that
only the modules that an adapter imports are loaded.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    package = ModuleType("windlass")
    package.__path__ = [str(Path(__file__).parents[2])]
    sys.modules["windlass"] = package
    import_module("windlass.bench.child.roles").main(sys.argv[1:])
