"""`import windlass` loads no optional package, and no driver before a URL needs it."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import windlass
from windlass.core import errors

# Dependencies of pydantic. Everything else must be the standard library or Windlass.
OWN = {"windlass"}
PYDANTIC = {
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "typing_inspection",
}
SCRIPT = """
import json, sys
before = set(sys.modules)
{code}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(new - set(sys.stdlib_module_names))))
"""


def packages_loaded_by(code: str, directory: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(code=code)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: list[str] = json.loads(done.stdout)
    # Build data of the standard library; its name depends on the machine.
    return {name for name in found if not name.startswith("_sysconfigdata")}


def test_importing_windlass_loads_pydantic_and_nothing_else(tmp_path: Path) -> None:
    assert packages_loaded_by("import windlass", tmp_path) <= OWN | PYDANTIC


def test_a_memory_url_needs_no_driver(tmp_path: Path) -> None:
    code = "import windlass; windlass.Windlass('memory:').close()"
    assert packages_loaded_by(code, tmp_path) <= OWN | PYDANTIC


def test_a_sqlite_url_loads_its_driver_and_nothing_else(tmp_path: Path) -> None:
    code = "import windlass; windlass.Windlass('sqlite:///jobs.db').close()"
    found = packages_loaded_by(code, tmp_path)
    assert "apsw" in found
    assert found <= OWN | PYDANTIC | {"apsw"}


def test_a_server_url_loads_its_driver_and_no_database(tmp_path: Path) -> None:
    code = "import windlass; windlass.Windlass('https://host').close()"
    found = packages_loaded_by(code, tmp_path)
    assert "httpx" in found
    assert not found & {"apsw", "asyncpg", "fastapi", "starlette", "uvicorn"}


def test_the_version_is_that_of_the_installed_package() -> None:
    assert windlass.__version__ == importlib.metadata.version("windlass")


def test_every_name_in_all_exists_and_is_listed_once() -> None:
    for name in windlass.__all__:
        assert hasattr(windlass, name), name
    assert len(set(windlass.__all__)) == len(windlass.__all__)


def test_every_name_that_the_package_imports_is_public() -> None:
    imported = {
        name
        for name, value in vars(windlass).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name != "annotations"
    }
    assert imported == set(windlass.__all__)


def class_tree(kind: type[BaseException]) -> list[type[BaseException]]:
    return [kind] + [
        descendant for child in kind.__subclasses__() for descendant in class_tree(child)
    ]


ERRORS = sorted(
    kind.__name__ for kind in class_tree(errors.WindlassError) if kind.__module__ == errors.__name__
)


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_class_is_a_public_name(name: str) -> None:
    assert name in windlass.__all__
