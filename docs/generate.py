"""Write the reference (docs/reference/) from the code: `make docs`."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import code_reader
import reference_pages
import windlass
from windlass import Context, testing
from windlass.client import Client, EnqueueOptions
from windlass.core.duration import seconds
from windlass.core.event import Event
from windlass.core.job.row import JobRow
from windlass.core.query.diagnosis import Because, Reason, Why
from windlass.core.query.queue_rates import Drain, Rates
from windlass.core.worker_presence import LiveWorker, Readiness
from windlass.insights.queues import Queue
from windlass.options import task_options
from windlass.store import Retention, Store

PLACE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by `make docs` from the code. Change the code, not this page. -->\n"
GROUPS = {
    "The app": ("Windlass", "Tasks"),
    "Tasks and their options": ("Task",),
    "Jobs": ("Job", "State", "NewJob"),
    "Schedules": ("Schedules", "Planned"),
    "Limits": ("Limit", "Limits", "Limited"),
    "Inside a running task": ("Context", "StageMap", "Batch", "Item"),
    "Waiting before a retry": ("exponential", "fixed", "schedule", "custom"),
    "Workers": ("Worker", "WorkerConfig"),
    "Serving": ("ServerConfig", "Door"),
    "Encryption": ("EncryptingCodec",),
}
CALLED = {
    "Windlass": "app", "Tasks": "tasks", "Task": "task", "Job": "job", "Context": "ctx",
    "Worker": "worker", "StageMap": "stages", "EncryptingCodec": "codec", "Twin": "jobs",
    "LoneContext": "ctx", "VirtualClock": "clock", "Store": "store", "Schedules": "app.schedules",
    "Limits": "app.limits",
    "Batch": "batch", "Item": "item",
}  # fmt: skip
SCHEDULED = (
    'cron, *, tz="UTC", missed="last", name=None, args=(), kwargs=None',
    'every=…, missed="last", name=None, args=(), kwargs=None',
)
FORMS = {
    "Windlass.task": ["@app.task", "@app.task(**options)"],
    "Windlass.lifespan": ["@app.lifespan"],
    "Windlass.middleware": ["@app.middleware"],
    "Windlass.schedule": [f"@app.schedule({SCHEDULED[0]})", f"@app.schedule({SCHEDULED[1]})"],
    "Tasks.task": ["@tasks.task", "@tasks.task(**options)"],
    "Tasks.schedule": [f"@tasks.schedule({SCHEDULED[0]})", f"@tasks.schedule({SCHEDULED[1]})"],
    "Task.options": ["task.options(**options) -> Task[P, R]"],
}
GIVEN = {
    "Job",
    "Context",
    "Task",
    "Worker",
    "Twin",
    "LoneContext",
    "Schedules",
    "Limits",
    "Batch",
    "Item",
}  # nobody makes these oneself
# Public among Windlass's own parts only: named, so that nobody wonders, and left at that.
INNER = {
    "Windlass": {
        "app_of", "add", "prepare", "stand_in", "kit", "client", "sync", "declare", "declared",
        "hosted", "key",
    },
    "Tasks": {"app_of", "add", "join", "leave", "declare", "declared"},
    "Task": {"spec", "given"},
    "Context": {
        "ask_to_stop", "take", "put_back", "flush", "quiet", "has_said", "flushing",
        "flushed_at", "used_workspace", "children", "current_step",
    },
    "EncryptingCodec": {"encode", "decode", "digest"},
    "Item": {"outcome"},
    "LiveWorker": {"encode", "decode"},
    "Limit": {"encode", "length"},
}  # fmt: skip
NAMING = [
    ("name", "str | None", "None", "what jobs store; None is the module's name and the function's"),
    ("aliases", "str | Iterable[str]", "()", "the names it had before: their jobs are still run"),
    ("batch", "int | None", "None", "one call gets up to so many jobs, in a `Batch`; needs `args`"),
    ("args", "Callable | None", "None", "of a batch task: what one job takes, such as a dataclass"),
    ("wait", "Duration", "0", "of a batch task: how long its first job waits for company"),
]
FIND = [
    ("delay a job", "python.md#options-of-a-job", '`task.options(delay="5m").enqueue(…)`'),
    ("enqueue at a fixed time", "python.md#options-of-a-job", "`task.options(run_at=…)`"),
    ("do it every night", "python.md#windlassschedule", '`@app.schedule("0 3 * * *")`'),
    ("run something first", "python.md#options-of-a-job", "`task.options(priority=5)`"),
    ("not do it twice", "python.md#options-of-a-job", '`task.options(request_id="…")`'),
    ("choose retries and timeout", "python.md#options-of-a-task", "`@app.task(max_retries=5)`"),
    ("wait for a result", "python.md#jobresult", "`job.result(timeout=30)`"),
    ("follow a job", "python.md#jobevents", "`for event in job.events(): …`"),
    ("cancel a job", "python.md#jobcancel", '`job.cancel("why")`'),
    ("limit how many run", "python.md#limit", "`@app.task(limit=Limit(concurrency=5))`"),
    ("know why it does not run", "python.md#jobwhy", "`job.why()`, `windlass jobs why ID`"),
    ("report progress", "python.md#contextprogress", "`ctx.progress(40)`"),
    ("record a step", "python.md#contextstep", '`ctx.step("voice", make_voice)`'),
    ("retry later, from a task", "python.md#errors", "`raise RetryAfter(60)`"),
    ("never retry", "errors.md#what-a-task-raises", "`raise InvalidInput(…)`"),
    ("do many jobs in one call", "python.md#batch", "`@app.task(batch=100, args=Page)`"),
    ("run a worker", "cli.md#windlass-worker", "`windlass worker jobs:app -Q media=2,default`"),
    ("use it without a database", "settings.md", '`Windlass("https://host", key="wl_…")`'),
    ("enqueue without Python", "http.md", "`curl localhost:8642/api/jobs -d …`"),
    ("set something for all commands", "settings.md", "`WINDLASS_URL`, `windlass.toml`"),
    ("test my tasks", "python.md#windlasstesting", "`with twin(app) as jobs: …`"),
]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def rows(found: Iterable[Sequence[str]]) -> list[list[str]]:
    """Names, types and defaults are code; what they mean, in the last column, is prose."""
    return [[*(code(cell) for cell in row[:-1]), row[-1]] for row in found]


def describe(thing: Any, level: int = 3) -> str:
    """One public name: what it is, how it is written, what it has."""
    parts = ["#" * level + f" {thing.__name__}"]
    if inspect.isfunction(thing):
        parts += [_block([_written(thing, thing.__name__)]), code_reader.doc(thing)]
    elif issubclass(thing, Enum):
        beside = code_reader.comments(thing) | code_reader.meanings(thing)
        members = [(m.value, beside.get(m.name) or beside.get(m.value, "")) for m in thing]
        parts += [code_reader.doc(thing), table(("value", "meaning"), rows(members))]
    else:
        parts += [code_reader.doc(thing), *_made(thing), *_parts(thing, level + 1)]
    return "\n\n".join(part for part in parts if part)


def _made(cls: Any) -> Iterator[str]:
    """How one comes by an object of the class, where one makes it oneself."""
    if dataclasses.is_dataclass(cls):
        yield _trim(("field", "type", "default", "meaning"), rows(code_reader.fields(cls)))
    elif "__init__" in vars(cls) and cls.__name__ not in GIVEN:
        yield _block([code_reader.call(vars(cls)["__init__"], cls.__name__)])


def _parts(cls: Any, level: int) -> Iterator[str]:
    """What an object of the class has and can do."""
    if issubclass(cls, Store) and cls is not Store:
        yield "It is a [store](store.md#verbs) around another."
        return
    inner = INNER.get(cls.__name__, set())
    if cls is testing.LoneContext:
        yield "All that a [Context](#context) has, and:"
        inner = {row[0] for row in code_reader.attributes(Context)}
        inner |= {name for name, _ in code_reader.methods(Context)}
    has = [row for row in code_reader.attributes(cls) if row[0] not in inner]
    if has:
        yield _trim(("attribute", "type", "meaning"), rows(has))
    for name, halves in code_reader.methods(cls):
        if name not in inner:
            yield _method(cls, name, halves, level)
    if cls.__name__ in INNER:
        names = ", ".join(code(name) for name in sorted(inner))
        yield f"Used among Windlass's own parts, not by applications: {names}."


def _trim(head: Sequence[str], found: list[list[str]]) -> str:
    """The table without a last column that says nothing."""
    if any(row[-1] for row in found):
        return table(head, found)
    return table(head[:-1], [row[:-1] for row in found])


def _written(function: Any, name: str) -> str:
    plain = inspect.unwrap(function)
    awaited = "await " if inspect.iscoroutinefunction(plain) else ""
    return code_reader.call(function, awaited + name)


def _block(lines: list[str]) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"


def _method(cls: Any, name: str, halves: list[Any], level: int) -> str:
    static = isinstance(inspect.getattr_static(cls, name), staticmethod)
    who = cls.__name__ if static else CALLED.get(cls.__name__, cls.__name__)
    lines = FORMS.get(f"{cls.__name__}.{name}") or [
        _written(half, f"{who}.{half.__name__}") for half in halves
    ]
    said = [(half.__name__, code_reader.doc(half)) for half in halves if code_reader.doc(half)]
    said.sort(key=lambda pair: pair[1].startswith("The same"))  # after what it is the same as
    if not said and cls is windlass.Job and (asked := getattr(Client, name, None)):
        said = [(name, code_reader.doc(asked))]
    texts = [text for _, text in said]
    if len(said) > 1:
        texts = [f"`{which}`: {text}" for which, text in said]
    return "\n\n".join(["#" * level + f" {cls.__name__}.{name}", _block(lines), *texts])


def _options() -> str:
    said = code_reader.meanings(task_options)
    mine = [
        (
            one.name,
            code_reader.kind(one.annotation, task_options),
            code_reader.shown(one.default),
            said,
        )
        for one in inspect.signature(task_options).parameters.values()
    ]
    of_task = [*NAMING, *((*row[:3], row[3].get(row[0], "")) for row in mine)]
    exact = inspect.signature(windlass.Task.options).parameters
    of_job = []
    for name, what, default, meaning in code_reader.fields(EnqueueOptions):
        given = code_reader.kind(exact[name].annotation, windlass.Task) if name in exact else what
        shown = "None" if name in exact else default
        of_job.append((name, given, shown, meaning))
    head = ("option", "type", "default", "meaning")
    return "\n\n".join([
        "### Options of a task", '`@app.task(queue="media", timeout="5m")`:',
        table(head, rows(of_task)),
        "### Options of a job",
        '`task.options(delay="5m", priority=5).enqueue(…)`:', table(head, rows(of_job)),
        code_reader.doc(seconds).replace("A duration given as", "A `Duration` is"),
    ])  # fmt: skip


def python() -> str:
    parts = [
        "# Python",
        (
            "`from windlass import …`. One naming rule: the bare name is for code without an event "
            "loop, the name with an `a` before it is awaited (`enqueue`, `aenqueue`); both do the "
            "same. `R` is what a task returns, an `Instant` is microseconds since 1970, UTC."
        ),
    ]
    public = {name: getattr(windlass, name) for name in windlass.__all__}
    errors = [name for name, thing in public.items() if _is_error(thing)]
    placed = {name for group in GROUPS.values() for name in group} | set(errors)
    groups = {**GROUPS, "More": tuple(name for name in public if name not in placed)}
    titles = [*(title for title in GROUPS), "What you are given", "Errors", "windlass.testing"]
    parts.append(" · ".join(f"[{title}](#{_anchor(title)})" for title in titles))
    for title, names in groups.items():
        there = [public[name] for name in names if name in public]
        if there:
            parts += [f"## {title}", *(describe(thing) for thing in there)]
        if "Task" in names:
            parts.append(_options())
    answers = [JobRow, Event, Why, Reason, Because, Retention, LiveWorker, Readiness, Queue, Rates]
    answers += [Drain]
    parts += ["## What you are given", *(describe(thing) for thing in answers)]
    parts += ["## Errors", _errors(public[name] for name in errors)]
    parts += ["## windlass.testing", code_reader.doc(testing)]
    parts += [describe(getattr(testing, name)) for name in testing.__all__]
    return "\n\n".join(parts)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _errors(found: Iterable[Any]) -> str:
    said = reference_pages.tree()
    lines = [[code(reference_pages.raised(cls)), said.get(cls.__name__, "")] for cls in found]
    return "All of them, with codes: [errors.md](errors.md).\n\n" + table(
        ("to raise or to catch", "meaning"), lines
    )


def index() -> str:
    about = [
        ("[python.md](python.md)", "the app, tasks, jobs, the context, workers, testing"),
        ("[cli.md](cli.md)", "every command with its options, exit codes"),
        ("[http.md](http.md)", "every route of the server, who may use it, its problems"),
        ("[settings.md](settings.md)", "every setting: environment, TOML, default"),
        ("[errors.md](errors.md)", "every error with its code, what is retried"),
        ("[events.md](events.md)", "a job's states, its moves, its events and their data"),
        ("[store.md](store.md)", "the contract, for authors of stores"),
    ]
    wanted = [(f"[{what}]({where})", how) for what, where, how in FIND]
    return "\n\n".join([
        "# Reference", ("Written from the code by `make docs`. To learn, begin with the "
        "[how-to pages](../how-to/); to understand, with the [design](../design/architecture.md)."),
        "## Find it", table(("I want to", "write"), wanted),
        "## Pages", table(("page", "what is there"), about),
    ])  # fmt: skip


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    made = {"README": index(), "python": python(), **reference_pages.pages(describe, table)}
    return {
        f"{name}.md": NOTE + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
        for name, text in made.items()
    }


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PLACE / name).write_text(text, "utf-8")
