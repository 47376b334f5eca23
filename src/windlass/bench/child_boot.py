"""Starts `windlass.bench.child` without the rest of Windlass: a peer must not carry our weight.

Run as a script. The package `windlass` is here an empty one with the same modules, so that nothing
of it is loaded but what a side asks for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    package = ModuleType("windlass")
    package.__path__ = [str(Path(__file__).parent.parent)]
    sys.modules["windlass"] = package
    import_module("windlass.bench.child").main(sys.argv[1:])
