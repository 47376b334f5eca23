"""What the code says about itself: signatures, docstrings, the comments beside a name."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

WIDTH = 88
_COMMENT = re.compile(r"^\s*(?:self\.)?(\w+)(?::[^#=]+)?(?: =[^#]*)?,?\s+# (.+)$")
_MEANING = re.compile(r"^([\w-]+): (.+)$")


def doc(thing: Any) -> str:
    """Its own docstring, without the lines that `meanings` reads."""
    text = inspect.cleandoc(_own_doc(thing))
    return "\n".join(line for line in text.splitlines() if not _MEANING.match(line)).strip()


def _own_doc(thing: Any) -> str:
    text = getattr(thing, "__doc__", None) or ""
    # A dataclass or an enum without one gets a text made up by the standard library.
    return "" if text.startswith((f"{getattr(thing, '__name__', '')}(", "An enum")) else text


def meanings(thing: Any) -> dict[str, str]:
    """The lines `name: meaning` of its docstring."""
    found = (_MEANING.match(line) for line in inspect.cleandoc(thing.__doc__ or "").splitlines())
    return {match[1]: match[2] for match in found if match}


def comments(thing: Any) -> dict[str, str]:
    """What stands beside each name: `name: kind = value  # meaning`."""
    found = (_COMMENT.match(line) for line in inspect.getsource(thing).splitlines())
    return {m[1]: m[2] for m in found if m and not m[2].startswith(("noqa", "type:", "fmt:"))}


def kind(annotation: Any, home: Any) -> str:
    """An annotation as it is written; a private alias is spelt out."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    names = vars(sys.modules[home.__module__])
    for alias in set(re.findall(r"\b_[A-Z]\w+", text)):
        text = re.sub(rf"\b{alias}\b", re.sub(r"\b[a-z.]+\.(?=[A-Z])", "", str(names[alias])), text)
    return text.strip("\"'")


def shown(default: Any, home: Any = None) -> str:
    """A default as one would write it; a constant that is large goes by its name."""
    if isinstance(default, str) and not isinstance(default, Enum):
        return json.dumps(default)
    if isinstance(default, Enum):
        return str(default)
    if isinstance(default, dict):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in default.items()) + "}"
    if isinstance(default, type | None | bool | int | float | tuple | frozenset | bytes):
        return default.__name__ if isinstance(default, type) else repr(default)
    names = vars(sys.modules[home.__module__]) if home else {}
    named = next((name for name, value in names.items() if value is default), None)
    if named is not None:
        return "…" if named.startswith("_") else named
    return f"{default.__name__ if callable(default) else type(default).__name__ + '()'}"


def call(function: Any, name: str) -> str:
    """The signature as somebody who calls it would read it."""
    source = inspect.unwrap(function)
    signature = inspect.signature(source)
    parts: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        parts.append(_parameter(parameter, source))
    answer = kind(signature.return_annotation, source)
    if function is not source and (inner := re.fullmatch(r"(?:Async)?Iterator\[(.+)\]", answer)):
        name, answer = f"with {name}", inner[1]
    tail = f" -> {answer}" if answer and answer != "None" else ""
    line = f"{name}({', '.join(parts)}){tail}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){tail}"


def _parameter(parameter: inspect.Parameter, home: Any) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    text = kind(parameter.annotation, home)
    if stars:
        return stars + parameter.name
    text = f": {text}" if text else ""
    if parameter.default is parameter.empty:
        return parameter.name + text
    return f"{parameter.name}{text} = {shown(parameter.default, home)}"


def fields(cls: Any) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each field of a value."""
    beside = {**meanings(cls)}
    for base in reversed(cls.__mro__[:-1]):
        beside = {**beside, **comments(base)}
    for field in dataclasses.fields(cls):
        if field.name.startswith("_") or not field.init:
            continue
        default = ""
        if field.default is not dataclasses.MISSING:
            default = shown(field.default, cls)
        elif field.default_factory is not dataclasses.MISSING:
            default = _made(field.default_factory)
        yield field.name, kind(field.type, cls), default, beside.get(field.name, "")


def _made(factory: Callable[[], Any]) -> str:
    if factory.__name__ == "<lambda>" or factory is dict:
        return shown(factory())
    return f"{factory.__name__}()"


def attributes(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of what an object has: set when it is made, or a property."""
    for base in reversed([base for base in cls.__mro__ if base.__module__.startswith("windlass")]):
        beside = comments(base)
        if "__init__" in vars(base) and not dataclasses.is_dataclass(base):
            for name, what in _assigned(vars(base)["__init__"]):
                yield name, what, beside.get(name, "")
        for name, what in inspect.get_annotations(base).items():
            if not dataclasses.is_dataclass(base) and not name.startswith(("_", "code")):
                yield name, kind(what, base), beside.get(name, "")
        for name, member in vars(base).items():
            if isinstance(member, property) and not name.startswith("_"):
                getter = inspect.unwrap(member.fget) if member.fget else member
                answer = kind(inspect.signature(getter).return_annotation, getter)  # type: ignore[arg-type]
                yield name, answer, " ".join(doc(member).split())


def _assigned(init: Any) -> Iterator[tuple[str, str]]:
    names = vars(sys.modules[init.__module__])
    given = inspect.signature(init).parameters
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init)))):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
            continue
        value = getattr(node, "value", None)
        what = ""
        if isinstance(node, ast.AnnAssign):
            what = ast.unparse(node.annotation)
        elif isinstance(value, ast.Name) and value.id in given:
            what = kind(given[value.id].annotation, init)
        elif isinstance(value, ast.Constant):
            what = type(value.value).__name__
        elif isinstance(value, ast.Call):
            called = names.get(ast.unparse(value.func))
            what = called.__name__ if isinstance(called, type) else ""
            if inspect.isfunction(called):
                what = kind(inspect.signature(called).return_annotation, called)
        yield target.attr, what


def methods(cls: Any) -> Iterator[tuple[str, list[Any]]]:
    """Each public method, with its async or sync other half; in the order of the source."""
    found: dict[str, Any] = {}
    for base in reversed([base for base in cls.__mro__ if base.__module__.startswith("windlass")]):
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if inspect.isfunction(inspect.unwrap(plain)) and not name.startswith("_"):
                found[name] = plain
    for name in found:
        halves = [other for other in found if other in {f"a{name}", f"a{name}_end"}]
        if name.startswith("a") and any(name in {f"a{other}", f"a{other}_end"} for other in found):
            continue
        yield name, [found[one] for one in [name, *halves]]
