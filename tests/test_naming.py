"""Rules of names and folders: unique class names, small folders, words of the field."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import windlass
import windlass.testing

ROOT = Path(__file__).parents[1]
MAX_FILES = 14
BANNED = ("told", "heard", "wish", "wishes", "whoever", "whom", "somebody", "nobody", "those who")
THIS_FILE = Path(__file__).resolve()
GENERATED = {"__pycache__", "node_modules", "static"}
TEXT = {".py", ".md", ".sql", ".js", ".ts", ".css", ".html"}
SPELLINGS = {
    "enqueueing": "enqueuing",
    "colour": "color",
    "neighbour": "neighbor",
    "behaviour": "behavior",
    "harbour": "harbor",
    "randomise": "randomize",
    "recognise": "recognize",
    "serialise": "serialize",
    "normalise": "normalize",
    "initialise": "initialize",
    "signalled": "signaled",
}
REAL_USES = {"tests/stores/postgres/pgbouncer.py: nobody": 1}  # a Unix user
FOLDERS = (
    "src", "docs", "js", "tests", "benchmarks", "examples",
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md",
)  # fmt: skip


def files_in(*names: str) -> list[Path]:
    """Return the files of these folders that are not generated."""
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


def test_no_folder_has_too_many_files() -> None:
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
    """In texts and in names: an underscore separates words, so `test_nobody_waits` is found."""
    words = "|".join(BANNED).replace(" ", "[ _]")
    pattern = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)
    found: dict[str, int] = defaultdict(int)
    for path in files_in(*FOLDERS):
        if path.suffix in TEXT and path != THIS_FILE:
            for match in pattern.findall(path.read_text()):
                found[f"{path.relative_to(ROOT)}: {match.lower()}"] += 1
    assert found == REAL_USES


def test_each_word_has_one_spelling() -> None:
    pattern = re.compile("|".join(SPELLINGS), re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match}, write {SPELLINGS[match.lower()]}"
        for path in files_in(*FOLDERS)
        if path.suffix in TEXT and path != THIS_FILE
        for match in pattern.findall(path.read_text())
    ]
    assert found == []
