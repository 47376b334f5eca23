"""Reference pages about commands, settings, errors, events and stores."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from typer.main import get_command

import code_reader
import windlass.settings
from windlass import store
from windlass.cli import HELP, cli
from windlass.cli.commands.config import duration
from windlass.cli.terminal import exit_code
from windlass.core import errors, event
from windlass.core.decisions import enqueue, transition
from windlass.core.event import LIFECYCLE, EventType
from windlass.core.job import failure, failure_details, state
from windlass.core.job.failure import ErrorKind, Failure
from windlass.schemas.events import REQUIRED_KEYS
from windlass.server.auth.api_keys import Role
from windlass.server.auth.permissions import ROLE_PERMISSIONS, Permission
from windlass.server.problem_details import PROBLEMS
from windlass.server.routes.route_table import ROUTES
from windlass.settings import SETTINGS

Table = Callable[..., str]
Describe = Callable[..., str]
HIDDEN = {"install_completion", "show_completion"}


def pages(describe: Describe, table: Table) -> dict[str, str]:
    return {
        "cli": commands(table),
        "http": http(table),
        "settings": settings_page(table),
        "errors": all_errors(table),
        "events": events(table),
        "store": contract(describe),
    }


# -- the server


def http(table: Table) -> str:
    """Return the page with every route, its roles, and its errors."""
    roles = {
        need: ", ".join(role.value for role in Role if need in ROLE_PERMISSIONS[role])
        for need in Permission
    } | {Permission.PUBLIC: "none required"}
    routes = [
        [
            f"`{one.method} {one.path.replace(':path', '')}`",
            _first(one.endpoint),
            roles[one.permission],
        ]
        for one in ROUTES
        if not one.internal
    ]
    codes = [[f"`{code}`", str(status), title, advice] for code, (status, title, advice) in
             sorted(PROBLEMS.items(), key=lambda item: (item[1][0], item[0]))]  # fmt: skip
    parts = [
        "# HTTP",
        (
            "`windlass serve`, `app.asgi()`, `app.router()`. JSON in camelCase; "
            "`GET /api/openapi.json` describes every field. How to: [server](../how-to/server.md)."
        ),
        "## Routes",
        table(("route", "action", "roles"), routes),
        (
            "`POST /api/store/…` is the internal protocol of [remote stores](../how-to/remote.md), "
            "with one route per method of [the store contract](store.md). It is not a public API."
        ),
        "## Errors",
        (
            "Errors are `application/problem+json`: `type` (`urn:windlass:problem:` and the code), "
            "`title`, `status`, `detail`, `advice`, `instance`, and `errors` by field."
        ),
        table(("code", "status", "problem", "advice"), codes),
        "## Event streams",
        "`data` has at least these keys, and `correlationId`:",
        table(
            ("event", "keys"),
            [
                [f"`{kind}`", ", ".join(f"`{key}`" for key in keys)]
                for kind, keys in REQUIRED_KEYS.items()
            ],
        ),
    ]
    return "\n\n".join(parts)


def _first(function: Any) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


# -- commands


def commands(table: Table) -> str:
    intro, _, rest = HELP.partition("Exit codes: ")
    codes, _, about = rest.partition("\n\n")
    parts = ["# Command line", intro.strip(), " ".join(about.split())]
    parts += [
        (
            "Every command has `--help`; `windlass --install-completion` installs shell "
            "completion. An option without a default uses the [setting](settings.md) of the "
            "same name, if any."
        )
    ]
    found = list(_walk(get_command(cli), "windlass"))
    links = [
        (f"[`{path}`](#{path.replace(' ', '-')})", _help(command).split("\n")[0])
        for path, command in found
    ]
    parts += [table(("command", "action"), links), "## Exit codes", _codes(table, codes)]
    for path, command in found:
        parts += [f"## {path}", *_command(table, path, command)]
    return "\n\n".join(part for part in parts if part)


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        if not one.hidden:
            yield from _walk(one, f"{path} {name}")


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _command(table: Table, path: str, command: Any) -> Iterator[str]:
    shown = [
        one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"
    ]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option" and one.name not in HIDDEN]
    words = [_argument(one) for one in arguments] + (["[options]"] if options else [])
    yield f"```\n{path} {' '.join(words)}\n```"
    yield _help(command)
    if arguments:
        rows = [(f"`{one.name.upper()}`", one.help or "") for one in arguments]
        yield table(("argument", "meaning"), rows)
    if options:
        yield table(("option", "default", "meaning"), [_option(one) for one in options])


def _argument(one: Any) -> str:
    word = one.name.upper() + ("..." if one.nargs != 1 else "")
    return word if one.required else f"[{word}]"


def _option(one: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
    plain = isinstance(one.default, str | int | float) and not isinstance(one.default, bool)
    return names, f"`{one.default}`" if plain else "", one.help or ""


def _codes(table: Table, text: str) -> str:
    classes = [cls for cls in _tree_classes() if cls is not errors.WindlassError]
    rows = []
    for part in " ".join(text.split()).rstrip(".").split("; "):
        number, _, meaning = part.partition(" ")
        same = [cls for cls in classes if exit_code(cls.__new__(cls)) == int(number)]
        top = [cls for cls in same if not set(cls.__mro__[1:]) & set(same)]
        rows.append((f"`{number}`", meaning, ", ".join(f"`{cls.__name__}`" for cls in top)))
    return table(("code", "meaning", "errors with this code"), rows)


# -- settings


def settings_page(table: Table) -> str:
    rows = [
        (
            f"`{name}`",
            f"`WINDLASS_{name.upper()}`",
            spec.type.format,
            _default(name, spec.default),
            spec.meaning,
        )
        for name, spec in SETTINGS.items()
    ]
    rules = inspect.cleandoc(windlass.settings.__doc__ or "").rpartition("\n\n")[2]
    return "\n\n".join([
        "# Settings", rules,
        "The name is the TOML key. `windlass config show` lists each value with its origin.",
        table(("name, TOML key", "environment", "format", "default", "meaning"), rows),
        ('```toml\n# windlass.toml\nurl = "sqlite:///jobs.db"\napp = "tasks:app"\n'
        'grace = "1m"\n\n[queues]\nmedia = 2\ndefault = 10\n```'),
    ])  # fmt: skip


def _default(name: str, value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, dict):
        return f"`{','.join(value)}`"
    is_time = isinstance(value, float) or name.startswith("keep_")
    return f"`{duration(value) if is_time else value}`"


# -- errors


def tree() -> dict[str, str]:
    """Return the meaning of each error, from the tree in the docstring of the module."""
    lines = re.findall(r"^[ │]*[├└]── (\w+) +(.+)$", errors.__doc__ or "", re.MULTILINE)
    return {"WindlassError": "every error of Windlass", **dict(lines)}


def _tree_classes() -> list[Any]:
    return [cls for name in tree() if (cls := getattr(errors, name, None)) is not None]


def raised(cls: Any) -> str:
    own = next((base for base in cls.__mro__ if "__init__" in vars(base)), None)
    if own is None or not own.__module__.startswith("windlass"):
        return str(cls.__name__)
    return code_reader.call(vars(own)["__init__"], cls.__name__)


def all_errors(table: Table) -> str:
    meanings = tree()
    diagram = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    every = [
        (f"`{cls.__name__}`", f"`{cls.code}`", meanings[cls.__name__], _becomes(cls))
        for cls in _tree_classes()
    ]
    codes = {cls.code: cls for cls in _tree_classes() if issubclass(cls, errors.TerminalError)}
    constants = [
        value for name, value in vars(failure).items() if name.isupper() and name[0] != "_"
    ]
    stored = []
    for code in [*(text for text in constants if isinstance(text, str)), *codes]:
        kind = ErrorKind.TERMINAL if code in codes else ErrorKind.RETRYABLE
        details = failure_details.details(Failure(code=code, kind=kind), task="", stage=None)
        stored.append((f"`{code}`", details.category, details.advice))
    return "\n\n".join([
        "# Errors", "```\n" + inspect.cleandoc(diagram) + "\n```",
        "Each class has a stable `code`: the API and the logs contain it, never the class name.",
        "## Exceptions in tasks",
        ("Any exception ends the attempt and is retried up to `max_retries` times, unless the task "
        "sets `terminal_on=` or `retry_on=`, or raises one of these errors. The failed job has the "
        "code of the error; for any other exception, the code is the name of its class."),
        table(("error", "code", "meaning", "in a task"), every),
        "## Codes of failed jobs",
        "Search for a code with `windlass jobs list --error CODE`.",
        table(("code", "category", "advice"), stored),
    ])  # fmt: skip


def _becomes(cls: Any) -> str:
    if issubclass(cls, errors.TerminalError):
        return "terminal: the job fails"
    special = {
        errors.RetryAfter: "retried after its delay, counted",
        errors.Snooze: "runs again after its delay, not counted",
        errors.Cancel: "the job is canceled",
    }
    return special.get(cls, "retryable")


# -- events


def events(table: Table) -> str:
    of_state, of_trigger = code_reader.comments(state.State), code_reader.comments(state.Trigger)
    states = [(f"`{one.value}`", of_state.get(one.name, ""), "yes" if one.final else "")
              for one in state.State]  # fmt: skip
    moves = [
        (f"`{start}`", f"`{trigger}`", of_trigger.get(trigger.name, ""), f"`{end}`")
        for (start, trigger), end in state.MOVES.items()
    ]
    kinds = []
    for one in EventType:
        meaning, _, keys = code_reader.meanings(EventType)[one.value].partition(" (")
        named = re.sub(r"\w+", lambda word: f"`{word[0]}`", keys)
        source = "the store" if one in LIFECYCLE else "the task or its worker"
        kinds.append((f"`{one.value}`", meaning, named.removesuffix(")"), source))
    return "\n\n".join([
        "# States and events", "## States", table(("state", "meaning", "final"), states),
        "## Transitions", ("All valid transitions; any other is refused. A job that can run "
        "at once is `queued` by the same write that creates it. A cancel of a running job is "
        "recorded, and wins over every outcome of the attempt."),
        table(("from", "trigger", "meaning", "to"), moves),
        "## Events", ("A job has one log, numbered from 1 without gaps: "
        "[`job.events()`](python.md#jobevents), `windlass jobs logs`. Each is an "
        "[Event](python.md#event); the last one of a job is `job-completed`, `job-failed` or "
        "`job-cancelled`. A task adds its own with [`ctx.emit`](python.md#contextemit)."),
        table(("type", "meaning", "keys of `data`", "written by"), kinds),
    ])  # fmt: skip


# -- stores


def contract(describe: Describe) -> str:
    rules = inspect.cleandoc(store.contract.__doc__ or "").partition("\n\n")[2]
    methods = inspect.getsource(store.Store)
    text = describe(store.Store, 2).replace("## Store\n", "## Methods\n", 1)
    for title, below in re.findall(r"# -- (.+)\n\n(?: {4}@.+\n)* {4}(?:async )?def (\w+)", methods):
        text = text.replace(f"### Store.{below}\n", f"### {title}\n\n### Store.{below}\n", 1)
    text = re.sub(
        r"^### (?!Store\.)(.+)$", lambda m: f"**{m[1].capitalize()}**", text, flags=re.MULTILINE
    )
    return "\n\n".join([
        "# The store contract",
        "For authors of stores. A store is correct if it passes `windlass.testing.conformance`.",
        "## Rules", rules, text,
        describe(store.StoreInsights, 2).replace("## StoreInsights\n", "## Insights\n", 1),
        "`stores.computed_insights` computes all of them except `gates` and `rollups`.",
        "## Values",
        ("See also [JobRow](python.md#jobrow), [NewJob](python.md#newjob), "
        "[Event](python.md#event) and [State](python.md#state)."),
        *(describe(thing) for thing in _values()),
    ])  # fmt: skip


def _values() -> list[Any]:
    """Return all argument and result types of the methods, with the types of their fields."""
    elsewhere = {"JobRow", "NewJob", "Event", "State", "Retention"}
    modules = (enqueue, event, transition, store.contract, store.insights, store.values)
    names = {name: thing for module in modules for name, thing in vars(module).items()}
    found: dict[str, Any] = {}
    todo = [
        inspect.getsource(store.Store),
        inspect.getsource(store.StoreInsights),
        str(transition.ApplyRequest),
    ]
    while todo:
        for name in re.findall(r"\b[A-Z]\w+", todo.pop()):
            thing = names.get(name)
            ours = dataclasses.is_dataclass(thing) or _is_enum(thing)
            if ours and name not in found and name not in elsewhere:
                found[name] = thing
                if dataclasses.is_dataclass(thing):
                    todo.append(" ".join(str(one.type) for one in dataclasses.fields(thing)))
    return [found[name] for name in sorted(found)]


def _is_enum(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Enum)
