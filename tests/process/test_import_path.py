"""Import paths: another process finds a function by module and name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from windlass.process.import_path import (
    ImportPath,
    find_holder,
    import_path_of,
    import_problem,
    resolve,
)

MODULE_OBJECT = object()


class Box:
    @staticmethod
    def inside() -> None: ...


def test_module_level_objects_are_found_by_name() -> None:
    for function in (test_module_level_objects_are_found_by_name, Box.inside):
        assert import_problem(function) is None
        assert resolve(import_path_of(function))[1] is function
    path = find_holder(MODULE_OBJECT)
    assert path == ImportPath(module=__name__, name="MODULE_OBJECT")
    assert resolve(path)[1] is MODULE_OBJECT
    assert find_holder(object()) is None


def test_functions_without_an_import_path_are_refused_with_a_reason() -> None:
    def local() -> None: ...

    for function, reason in (
        (local, "defined inside 'test_functions_without_an_import_path_are_refused_with_a_reason'"),
        (lambda: None, "is a lambda"),
    ):
        assert reason in str(import_problem(function))


def run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_function_defined_at_a_prompt_is_refused(tmp_path: Path) -> None:
    code = (
        "from windlass.process.import_path import import_problem\n"
        "def typed(): ...\n"
        "print(import_problem(typed))\n"
    )
    assert "defined at a prompt" in run("-c", code, cwd=tmp_path)


MAIN = """
import sys
from dataclasses import asdict
from windlass.process.import_path import ImportPath, find_holder, import_path_of
from windlass.process.import_path import loading_main, resolve
{more}
def function():
    return __name__, __package__, getattr(__spec__, "name", None), MARK

if __name__ == "__main__":
    path = import_path_of(function)
    assert not loading_main()
    module, found = resolve(ImportPath(**asdict(path)))
    assert found is not function
    assert resolve(path)[1] is found, "read twice"
    assert sys.modules["__main__"] is module
    assert find_holder(found).module == "__main__"
    print(*found())
else:
    assert loading_main()
"""


def test_the_main_script_is_loaded_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(MAIN.format(more="MARK = 1"))
    assert run("script", cwd=tmp_path) == "__mp_main__ None None 1"


def test_a_main_module_of_a_package_keeps_its_package(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "near.py").write_text("MARK = 7")
    (tmp_path / "shop" / "tool.py").write_text(MAIN.format(more="from .near import MARK"))
    assert run("-W", "error", "-m", "shop.tool", cwd=tmp_path) == "__mp_main__ shop shop.tool 7"


def test_a_task_of_a_script_has_its_importable_name(tmp_path: Path) -> None:
    script = tmp_path / "film.py"
    script.write_text(
        "from windlass import Windlass\n"
        "app = Windlass('memory:')\n"
        "@app.task\n"
        "def cut() -> None: ...\n"
        "if __name__ == '__main__':\n"
        "    print(cut.name)\n"
    )
    for words in ([str(script)], ["-m", "film"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "film.cut"
