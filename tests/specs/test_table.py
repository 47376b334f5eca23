"""The specification page and these tests refer to each other completely."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/specifications.md"
PARTS = {
    "the server",
    "the clients",
    "the AWS store",
    "the PostgreSQL store",
    "media",
    "processes",
    "telemetry",
    "flows",
}


def defined(file: Path) -> set[str]:
    """Return the names of the tests in a file."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, kinds)]
    return {name for name in found if name.startswith("test_")}


def sections() -> dict[str, str]:
    """Return the five sections of the page that name test files, by title."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    titled = {part.partition("\n")[0]: part for part in parts}
    return {title: part for title, part in titled.items() if "\nTests: " in part}


def files(section: str) -> list[Path]:
    [line] = re.findall(r"^Tests: (.*)$", section, flags=re.MULTILINE)
    return [ROOT / name for name in re.findall(r"`([^`]+)`", line)]


@pytest.mark.parametrize("title", sections())
def test_a_specification_names_exactly_its_tests(title: str) -> None:
    section = sections()[title]
    named = set(re.findall(r"`(test_\w+)`", section))
    assert named == {name for file in files(section) for name in defined(file)}


@pytest.mark.parametrize("title", sections())
def test_every_rule_is_shown_by_a_test_or_belongs_to_a_part(title: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", sections()[title], flags=re.MULTILINE)
    rules = [(rule, shown) for rule, shown in rows if shown != "shown by"]
    assert len(rules) >= 20
    for rule, shown in rules:
        assert shown in PARTS or re.fullmatch(r"`[\w/.:]+`(, `[\w/.:]+`)*", shown), rule


def test_every_test_elsewhere_that_is_named_exists() -> None:
    elsewhere = re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAGE.read_text())
    assert elsewhere
    for file, name in elsewhere:
        assert name in defined(ROOT / file), f"{file}::{name}"


def test_every_file_of_tests_belongs_to_a_specification() -> None:
    named = {file for section in sections().values() for file in files(section)}
    assert len(sections()) == 5
    assert named == set(Path(__file__).parent.glob("test_*.py")) - {Path(__file__)}
