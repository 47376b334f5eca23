"""Import paths: module and name by which another process finds a function or object.

The main module is special, as in `multiprocessing`: the other process runs its file under the name
`__mp_main__`, so that code under `if __name__ == "__main__"` does not run.
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
MAIN_ALIAS = "__mp_main__"
_LOADING = "__windlass_loading__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPath:
    """Module and qualified name of an object.

    For objects of the main module, `file` is its file and `spec` its name under `python -m`.
    """

    module: str
    name: str
    file: str | None = None
    spec: str | None = None

    def __str__(self) -> str:
        return f"{self.name} of {self.file or self.module}"


def import_problem(function: Callable[..., Any]) -> str | None:
    """Return why another process cannot import this function, or None."""
    name = function.__qualname__
    if "<lambda>" in name:
        return f"{name!r} is a lambda; define a named function in a module"
    if "<locals>" in name:
        outer = name.partition(".<locals>")[0]
        return f"{name!r} is defined inside {outer!r}; move it to module level"
    if function.__module__ in {MAIN, MAIN_ALIAS} and _main_file() is None:
        return f"{name!r} was defined at a prompt; move it to a module and import it from there"
    return None


def module_name(function: Callable[..., Any]) -> str:
    """Return the module name that other processes import, also for the main script."""
    name = function.__module__
    if name not in {MAIN, MAIN_ALIAS}:
        return name
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name not in {MAIN, MAIN_ALIAS}:
        return str(spec.name)  # python -m package.module
    file = getattr(module, "__file__", None)
    return Path(file).stem if file else MAIN


def import_path_of(function: Callable[..., Any]) -> ImportPath:
    return _import_path(function.__module__, function.__qualname__)


def find_holder(target: object) -> ImportPath | None:
    """Find a module-level variable that holds this object; the main module comes last."""
    modules = list(sys.modules.items())
    modules.sort(key=lambda item: item[0] in {MAIN, MAIN_ALIAS})
    for module, content in modules:
        if module in {MAIN, MAIN_ALIAS} and _main_file() is None:
            continue
        for name, value in list(getattr(content, "__dict__", {}).items()):
            if value is target:
                return _import_path(module, name)
    return None


def _import_path(module: str, name: str) -> ImportPath:
    if module not in {MAIN, MAIN_ALIAS}:
        return ImportPath(module=module, name=name)
    return ImportPath(module=MAIN, name=name, file=_main_file(), spec=_main_spec())


def _main_file() -> str | None:
    name = getattr(sys.modules.get(MAIN), "__file__", None)
    file = Path(name).absolute() if name else None
    return str(file) if file and file.is_file() else None


def _main_spec() -> str | None:
    """Return the module name given to `python -m`, if any."""
    spec = getattr(sys.modules.get(MAIN), "__spec__", None)
    return None if spec is None else str(spec.name)


def resolve(path: ImportPath) -> tuple[ModuleType, Any]:
    """Import the module at the path; return it and the object."""
    module = _load_main(path) if path.module == MAIN else importlib.import_module(path.module)
    found: Any = module
    for part in path.name.split("."):
        found = getattr(found, part)
    return module, found


def loading_main() -> bool:
    """Whether this child process is currently importing the parent's main module."""
    return hasattr(sys.modules.get(MAIN_ALIAS), _LOADING)


def _load_main(path: ImportPath) -> ModuleType:
    loaded = sys.modules.get(MAIN_ALIAS)
    if loaded is not None:
        return loaded
    if path.file is None:
        raise ImportError("the main module of the parent process has no file")
    loader = SourceFileLoader(MAIN_ALIAS, path.file)
    module = ModuleType(MAIN_ALIAS)
    module.__file__, module.__loader__ = path.file, loader
    if path.spec is not None:
        package = path.spec.rpartition(".")[0]
        if package:
            importlib.import_module(package)
        module.__package__ = package
        module.__spec__ = ModuleSpec(path.spec, loader, origin=path.file)
    previous = sys.modules[MAIN]
    sys.modules[MAIN] = sys.modules[MAIN_ALIAS] = module
    setattr(module, _LOADING, True)
    try:
        loader.exec_module(module)
        delattr(module, _LOADING)
    except BaseException:
        sys.modules[MAIN] = previous
        del sys.modules[MAIN_ALIAS]
        raise
    return module
