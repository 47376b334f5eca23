"""Modules of the pages in Node: timing, races and hostile input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.browser.conftest import PAGES
from tests.js.node import JS, run_tests

HERE = Path(__file__).parent / "node"


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("*.test.js")))
def test_page_modules_without_browser(tmp_path: Path, name: str) -> None:
    """Copy the client into the folder of the pages, where the server mounts it."""
    shutil.copytree(PAGES, tmp_path / "assets")
    shutil.copytree(JS, tmp_path / "assets" / "client", dirs_exist_ok=True)
    (tmp_path / "assets" / "test").mkdir()
    found = shutil.copy(HERE / name, tmp_path / "assets" / "test")
    shutil.copy(JS / "package.json", tmp_path / "assets")
    run_tests(Path(found))
