"""The rules of names and folders: one class name, one meaning; small folders; plain words."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import windlass
import windlass.testing

ROOT = Path(__file__).parents[1]
MAX_FILES = 15
BANNED = ("told", "heard", "wish", "wishes", "whoever", "whom", "somebody", "nobody", "those who")
GENERATED = {"__pycache__", "node_modules", "static"}
TEXT = {".py", ".md", ".sql", ".js", ".ts", ".css", ".html"}
REAL_USES: dict[str, int] = {}


def files_in(*names: str) -> list[Path]:
    """The files in these folders that a person writes."""
    paths = [path for name in names for path in (ROOT / name, *(ROOT / name).rglob("*"))]
    return [path for path in paths if path.is_file() and not GENERATED & set(path.parts)]


def test_two_classes_never_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in files_in("src"):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    folders: dict[str, int] = defaultdict(int)
    for path in files_in("src", "js"):
        if path.suffix in TEXT and path.name not in {"__init__.py", "__main__.py"}:
            folders[str(path.parent.relative_to(ROOT))] += 1
    large = {name: count for name, count in folders.items() if count > MAX_FILES}
    assert large == {}


def test_every_public_name_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs/design/glossary.md").read_text()
    words = set(re.findall(r"`(?:windlass\.)?(?:testing\.)?(\w+)`", glossary))
    public = {*windlass.__all__, *windlass.testing.__all__}
    assert sorted(public - words) == []


def test_texts_use_plain_words() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
    found: dict[str, int] = defaultdict(int)
    for path in files_in("src", "docs", "js", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        if path.suffix in TEXT:
            for line in path.read_text().splitlines():
                for match in pattern.findall(line):
                    found[f"{path.relative_to(ROOT)}: {match.lower()}"] += 1
    assert found == REAL_USES
