"""Loads an app from `module:app`, with a clear error if it fails."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from windlass.app import Windlass
from windlass.core.errors import ConfigurationError
from windlass.settings import load_settings

DEFAULT_NAME = "app"


def require_app(path: str | None) -> Windlass:
    """Load the app of the option or of the settings."""
    setting = load_settings({"app": path})["app"]
    if setting.value is None:
        raise ConfigurationError(
            "no app given: add -A module:app, set WINDLASS_APP, "
            'or write app = "module:app" in windlass.toml'
        )
    return load_app(setting.value)


def load_app(path: str) -> Windlass:
    """Import the module, also from the working directory, and return its app."""
    module_name, _, name = path.partition(":")
    name = name or DEFAULT_NAME
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(f"{path!r} is a file; give its module: {dotted}:{name}")
    if not all(part.isidentifier() for part in [*module_name.split("."), *name.split(".")]):
        raise ConfigurationError(f"{path!r} does not have the form module:app")
    module = _import(module_name)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(
                f"module {module_name!r} ({module.__file__}) has no {name!r}{_suggest_apps(module)}"
            )
        found = getattr(found, part)
    if not isinstance(found, Windlass):
        raise ConfigurationError(
            f"{path} is {found!r:.80}, not a Windlass app{_suggest_apps(module)}"
        )
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigurationError(
                f"no module {name!r} in {here}; {_suggest_folder(name)}"
            ) from None
        raise _import_error(name, error) from None
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - any error of the module
        raise _import_error(name, error) from None


def _import_error(name: str, error: Exception) -> ConfigurationError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "its import"
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    return ConfigurationError(
        f"importing {name!r} failed: {type(error).__name__}: {error} ({where})"
    )


def _suggest_folder(name: str) -> str:
    """Suggest a directory that holds the module."""
    first = name.partition(".")[0]
    here = Path.cwd()
    for folder in (here / "src", here.parent, *sorted(here.glob("*/"))):
        if (folder / f"{first}.py").is_file() or (folder / first / "__init__.py").is_file():
            return f"it is in {folder}: run cd {folder} first"
    return "change to its directory or install it, and check the spelling"


def _suggest_apps(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Windlass)]
    if not apps:
        return f"; the module has no Windlass app: add {DEFAULT_NAME} = Windlass() to it"
    return f"; it has {', '.join(f'{module.__name__}:{name}' for name in apps)}"
