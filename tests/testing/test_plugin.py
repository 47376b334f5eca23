"""The pytest plugin in a user's test run."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent.parent

APP = """
from windlass import Windlass

app = Windlass("sqlite:///real.db")

@app.task(max_retries=1)
async def double(number: int) -> int:
    return 2 * number
"""
TESTS = """
from shop import double

def test_jobs(jobs):
    job = double.enqueue(21)
    jobs.assert_enqueued(double, number=21)
    assert jobs.drain() == {"succeeded": 1}
    assert job.result() == 42

def test_each_test_has_a_twin_of_its_own(jobs):
    jobs.assert_not_enqueued(double)

def test_inline(inline_jobs):
    assert double.enqueue(1).result() == 2
    inline_jobs.clock.advance("1h")
"""


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *, apart: bool = False
) -> pytest.RunResult:
    """Run pytest with only the plugin of Windlass, whether or not it is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("WINDLASS_APP", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
    return start("-p", "_windlass_pytest", "-W", "error")


def test_the_app_can_be_set_in_the_pytest_configuration(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nwindlass_app = shop:app\n")
    pytester.makepyfile(shop=APP, test_shop=TESTS)
    run(pytester, monkeypatch).assert_outcomes(passed=3)
    assert not (pytester.path / "real.db").exists()


def test_the_app_can_be_set_in_the_windlass_configuration(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makefile(".toml", windlass='app = "shop:app"')
    pytester.makepyfile(shop=APP, test_shop=TESTS)
    run(pytester, monkeypatch).assert_outcomes(passed=3)


def test_the_app_can_come_from_a_fixture(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nwindlass_app = no.such:thing\n")
    pytester.makeconftest("""
        import pytest

        @pytest.fixture
        def windlass_app():
            from shop import app
            return app
    """)
    pytester.makepyfile(shop=APP, test_shop=TESTS)
    run(pytester, monkeypatch).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("", "*no app to test: define a fixture `windlass_app`*"),
        ("windlass_app = shop:nix", "*the app to test: module 'shop' * has no 'nix'*shop:app*"),
        ("windlass_app = nix:app", "*the app to test: no module 'nix'*"),
    ],
)
def test_without_an_app_the_error_describes_the_fix(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, setting: str, says: str
) -> None:
    pytester.makeini(f"[pytest]\n{setting}\n")
    pytester.makepyfile(shop=APP, test_shop="def test_it(jobs): pass")
    result = run(pytester, monkeypatch)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([says])


def test_an_unused_plugin_imports_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile("""
        import sys
        import pytest

        @pytest.fixture
        def jobs():
            return ["my", "own"]

        def test_own_fixture(jobs):
            assert jobs == ["my", "own"]
            for name in ("windlass", "pydantic", "apsw", "typer", "asyncio"):
                assert name not in sys.modules, name
    """)
    run(pytester, monkeypatch, apart=True).assert_outcomes(passed=1)


def test_the_package_declares_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [(name, module)] = project["project"]["entry-points"]["pytest11"].items()
    assert name == "windlass"
    assert hasattr(import_module(module), "pytest_addoption")
    assert f"src/{module}.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_windlass_testing_does_not_import_pytest(pytester: pytest.Pytester) -> None:
    done = pytester.runpython_c(
        "import sys, windlass.testing as t\n"
        "assert not {'pytest', 'hypothesis', 'apsw', 'typer'} & set(sys.modules)\n"
        "assert all(hasattr(t, name) for name in t.__all__)\n"
    )
    assert done.ret == 0


def test_the_tests_in_the_documentation_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/how-to/test-your-tasks.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    pytester.makepyfile(test_page="\n".join(code))
    run(pytester, monkeypatch).assert_outcomes(passed=2)
