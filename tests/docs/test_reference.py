"""The reference pages match the code, are complete, and have valid links."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass import Context, Windlass, WorkerConfig, testing
from windlass.core.event import EventType
from windlass.options import EnqueueOptions, task_options

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"


@pytest.fixture(scope="module")
def generated() -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("generate").pages()


def prose(page: str) -> str:
    """Return the page without code blocks, where # and ] have other meanings."""
    return re.sub(r"```.*?```", "", (REFERENCE / page).read_text("utf-8"), flags=re.DOTALL)


def anchors(page: str) -> list[str]:
    """Return the anchors of headings, as a code host creates them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]


def test_the_pages_match_the_code(generated: dict[str, str]) -> None:
    there = {path.name: path.read_text("utf-8") for path in REFERENCE.glob("*.md")}
    assert sorted(there) == sorted(generated), (
        "run `make docs`, and remove pages that it does not write"
    )
    old = [name for name, text in generated.items() if there[name] != text]
    assert not old, f"{', '.join(old)} do not match the code: run `make docs`"


def test_every_public_name_is_in_the_reference(generated: dict[str, str]) -> None:
    page = generated["python.md"]
    for name in [*windlass.__all__, *testing.__all__]:
        assert re.search(rf"^### {name}$|^\| `{name}\b", page, re.MULTILINE), name


@pytest.mark.parametrize(
    ("title", "options"),
    [
        ("Options of a task", [*inspect.signature(task_options).parameters]),
        ("Options of a job", [*EnqueueOptions.__slots__]),
    ],
)
def test_every_option_has_a_meaning(
    generated: dict[str, str], title: str, options: list[str]
) -> None:
    section = generated["python.md"].partition(f"### {title}\n")[2].partition("\n#")[0]
    rows = [re.split(r" (?<!\\)\| ", row.strip("| ")) for row in section.splitlines()]
    reported = {row[0].strip("`") for row in rows if len(row) == 4 and row[3]}
    for name in options:
        assert name in reported, f"add a line `{name}: …` to the docstring"


def test_no_page_is_empty(generated: dict[str, str]) -> None:
    for name, text in generated.items():
        assert len(text.splitlines()) > 20, name


@pytest.mark.parametrize("page", sorted(path.name for path in REFERENCE.glob("*.md")))
def test_every_link_leads_to_a_heading(page: str) -> None:
    for target, _, anchor in re.findall(r"\]\(([\w./-]*)(#([\w-]+))?\)", prose(page)):
        assert not target or (REFERENCE / target).exists(), target
        if anchor:
            assert anchor in anchors(target or page), f"{target}#{anchor}"


def test_events_have_the_keys_that_the_page_lists(
    generated: dict[str, str], tmp_path: Path
) -> None:
    app = Windlass("memory:", data=tmp_path)

    async def voice(ctx: Context) -> None:
        ctx.progress(70, "speaking")

    @app.task(max_retries=0)
    async def speak(ctx: Context, how: str) -> str:
        ctx.stage("plan")
        ctx.progress(50, "half")
        ctx.log("a line")
        ctx.warn("careful")
        ctx.artifact("film", "file:///film")
        await ctx.astep("voice", voice, ctx)
        if how == "fail":
            raise windlass.InvalidInput("no")
        if how == "cancel":
            raise windlass.Cancel("enough")
        return how

    async def seen() -> dict[EventType, dict[str, Any]]:
        jobs = [await speak.aenqueue(how) for how in ("succeed", "fail", "cancel")]
        await app.worker(WorkerConfig(burst=True)).run()
        events = [event for job in jobs for event in [one async for one in job.aevents()]]
        await app.aclose()
        reported: dict[EventType, dict[str, Any]] = {}
        for event in events:
            reported.setdefault(event.type, {}).update(event.data)
        return reported

    reported = asyncio.run(seen())
    assert len(reported) == 9
    for kind, data in reported.items():
        [row] = re.findall(rf"^\| `{kind.value}` \|.*$", generated["events.md"], re.MULTILINE)
        keys = re.findall(r"`(\w+)`", row.split("|")[3])
        assert keys, kind
        assert set(keys) <= set(data), kind
