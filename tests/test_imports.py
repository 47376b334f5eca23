"""`import windlass` is light: nothing optional, and no driver before a URL names it."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import windlass
from windlass.core import errors

# What pydantic brings along; everything else must be the standard library or ourselves.
OURS = {"windlass"}
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


def loaded_by(code: str, place: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(code=code)],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: list[str] = json.loads(done.stdout)
    # The standard library's own build data, whose name depends on the machine.
    return {name for name in found if not name.startswith("_sysconfigdata")}


def test_importing_windlass_loads_pydantic_and_nothing_else(tmp_path: Path) -> None:
    assert loaded_by("import windlass", tmp_path) <= OURS | PYDANTIC


def test_a_memory_url_needs_no_driver(tmp_path: Path) -> None:
    code = "import windlass; windlass.Windlass('memory:').close()"
    assert loaded_by(code, tmp_path) <= OURS | PYDANTIC


def test_a_sqlite_url_loads_its_driver_and_nothing_else(tmp_path: Path) -> None:
    code = "import windlass; windlass.Windlass('sqlite:///jobs.db').close()"
    found = loaded_by(code, tmp_path)
    assert "apsw" in found
    assert found <= OURS | PYDANTIC | {"apsw"}


def test_a_server_url_loads_its_driver_and_no_database(tmp_path: Path) -> None:
    code = "import windlass; windlass.Windlass('https://host').close()"
    found = loaded_by(code, tmp_path)
    assert "httpx" in found
    assert not found & {"apsw", "asyncpg", "fastapi", "starlette", "uvicorn"}


def test_every_name_in_all_exists_and_is_listed_once() -> None:
    for name in windlass.__all__:
        assert hasattr(windlass, name), name
    assert len(set(windlass.__all__)) == len(windlass.__all__)


def test_every_name_that_the_package_imports_is_public() -> None:
    gathered = {
        name
        for name, value in vars(windlass).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name != "annotations"
    }
    assert gathered == set(windlass.__all__)


def leaves(kind: type[BaseException]) -> list[type[BaseException]]:
    return [kind] + [leaf for child in kind.__subclasses__() for leaf in leaves(child)]


ERRORS = sorted(
    kind.__name__ for kind in leaves(errors.WindlassError) if kind.__module__ == errors.__name__
)


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_class_is_a_public_name(name: str) -> None:
    assert name in windlass.__all__
