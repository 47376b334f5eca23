"""Tests and files that the pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.testing.conformance import suite

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    for kind, name in re.findall(r"`(Test\w+)\.(test_\w+)`", page.read_text()):
        assert hasattr(getattr(suite, kind), name), f"{kind}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_by_its_file_exists(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)", page.read_text())
    for file, names in named:
        text = (ROOT / file).read_text()
        for name in re.findall(r"test_\w+", names):
            assert f"def {name}(" in text, f"{file}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_exists(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target
    for target in re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w/.]+)`", text):
        assert (ROOT / target).exists(), target


def test_every_guarantee_names_a_test() -> None:
    page = (ROOT / "docs/design/guarantees.md").read_text()
    rows = [row for row in page.splitlines() if row.startswith("| ") and "---" not in row]
    assert len(rows) > 30
    for row in rows[1:]:
        if "caught by" not in row:
            assert "`Test" in row or "`tests/" in row, row
