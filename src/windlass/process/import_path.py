"""How another process finds what this one holds: by the module that holds it, and its name there.

The main module is special, as it is for `multiprocessing`: the other process runs its file under
the name `__mp_main__`, so that what stands under `if __name__ == "__main__"` is left out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

MAIN = "__main__"
MAIN_AGAIN = "__mp_main__"
_LOADING = "__windlass_loading__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`file` is the main module's, where that is what holds it; `spec` its name if it has one."""

    module: str
    name: str
    file: str | None = None
    spec: str | None = None

    def __str__(self) -> str:
        return f"{self.name} of {self.file or self.module}"


def importable(function: Callable[..., Any]) -> str | None:
    """Why another process could not find this function, or None if it can be tried."""
    name = function.__qualname__
    if "<lambda>" in name:
        return f"{name!r} is a lambda; give it a name, in a module"
    if "<locals>" in name:
        outer = name.partition(".<locals>")[0]
        return f"{name!r} is defined inside {outer!r}; move it to the top of its module"
    if function.__module__ in {MAIN, MAIN_AGAIN} and _main_file() is None:
        return f"{name!r} was typed in at a prompt; put it in a module, and import it from there"
    return None


def module_name(function: Callable[..., Any]) -> str:
    """The module, by the name that others import it by, also where it is the main script."""
    name = function.__module__
    if name not in {MAIN, MAIN_AGAIN}:
        return name
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name not in {MAIN, MAIN_AGAIN}:
        return str(spec.name)  # python -m package.module
    file = getattr(module, "__file__", None)
    return Path(file).stem if file else MAIN


def address_of(function: Callable[..., Any]) -> Address:
    return _address(function.__module__, function.__qualname__)


def holder(thing: object) -> Address | None:
    """Where a module of this process holds it by a name; the main module only if no other does."""
    modules = list(sys.modules.items())
    modules.sort(key=lambda item: item[0] in {MAIN, MAIN_AGAIN})
    for module, content in modules:
        if module in {MAIN, MAIN_AGAIN} and _main_file() is None:
            continue
        for name, value in list(getattr(content, "__dict__", {}).items()):
            if value is thing:
                return _address(module, name)
    return None


def _address(module: str, name: str) -> Address:
    if module not in {MAIN, MAIN_AGAIN}:
        return Address(module=module, name=name)
    return Address(module=MAIN, name=name, file=_main_file(), spec=_main_spec())


def _main_file() -> str | None:
    name = getattr(sys.modules.get(MAIN), "__file__", None)
    file = Path(name).absolute() if name else None
    return str(file) if file and file.is_file() else None


def _main_spec() -> str | None:
    """As what it was run by `python -m`."""
    spec = getattr(sys.modules.get(MAIN), "__spec__", None)
    return None if spec is None else str(spec.name)


def find(address: Address) -> tuple[ModuleType, Any]:
    """The module at the address, imported if need be, and what it holds there."""
    module = _main(address) if address.module == MAIN else importlib.import_module(address.module)
    found: Any = module
    for part in address.name.split("."):
        found = getattr(found, part)
    return module, found


def loading_main() -> bool:
    """Whether this process is a child that is just now running the parent's main module."""
    return hasattr(sys.modules.get(MAIN_AGAIN), _LOADING)


def _main(address: Address) -> ModuleType:
    known = sys.modules.get(MAIN_AGAIN)
    if known is not None:
        return known
    if address.file is None:
        raise ImportError("the main module of the parent process has no file")
    loader = SourceFileLoader(MAIN_AGAIN, address.file)
    module = ModuleType(MAIN_AGAIN)
    module.__file__, module.__loader__ = address.file, loader
    if address.spec is not None:
        package = address.spec.rpartition(".")[0]
        if package:
            importlib.import_module(package)
        module.__package__ = package
        module.__spec__ = ModuleSpec(address.spec, loader, origin=address.file)
    before = sys.modules[MAIN]
    sys.modules[MAIN] = sys.modules[MAIN_AGAIN] = module
    setattr(module, _LOADING, True)
    try:
        loader.exec_module(module)
        delattr(module, _LOADING)
    except BaseException:
        sys.modules[MAIN] = before
        del sys.modules[MAIN_AGAIN]
        raise
    return module
