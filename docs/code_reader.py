"""Read signatures, docstrings and the comments after names from the code."""

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
    """Return the docstring of `thing`, without the lines that `meanings` reads."""
    text = inspect.cleandoc(_own_doc(thing))
    return "\n".join(line for line in text.splitlines() if not _MEANING.match(line)).strip()


def _own_doc(thing: Any) -> str:
    text = getattr(thing, "__doc__", None) or ""
    # The standard library generates a docstring for dataclasses and enums without one.
    return "" if text.startswith((f"{getattr(thing, '__name__', '')}(", "An enum")) else text


def meanings(thing: Any) -> dict[str, str]:
    """Return the `name: meaning` lines of the docstring."""
    found = (_MEANING.match(line) for line in inspect.cleandoc(thing.__doc__ or "").splitlines())
    return {match[1]: match[2] for match in found if match}


def comments(thing: Any) -> dict[str, str]:
    """Return the comment after each name: `name: kind = value  # meaning`."""
    found = (_COMMENT.match(line) for line in inspect.getsource(thing).splitlines())
    return {m[1]: m[2] for m in found if m and not m[2].startswith(("noqa", "type:", "fmt:"))}


def kind(annotation: Any, owner: Any) -> str:
    """Return an annotation as written; private aliases are expanded."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    names = vars(sys.modules[owner.__module__])
    for alias in set(re.findall(r"\b_[A-Z]\w+", text)):
        text = re.sub(rf"\b{alias}\b", re.sub(r"\b[a-z.]+\.(?=[A-Z])", "", str(names[alias])), text)
    return text.strip("\"'")


def shown(default: Any, owner: Any = None) -> str:
    """Return a default as source text; a large constant is shown by its name."""
    if isinstance(default, str) and not isinstance(default, Enum):
        return json.dumps(default)
    if isinstance(default, Enum):
        return str(default)
    if isinstance(default, dict):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in default.items()) + "}"
    if isinstance(default, type | None | bool | int | float | tuple | frozenset | bytes):
        return default.__name__ if isinstance(default, type) else repr(default)
    names = vars(sys.modules[owner.__module__]) if owner else {}
    named = next((name for name, value in names.items() if value is default), None)
    if named is not None:
        return "…" if named.startswith("_") else named
    return f"{default.__name__ if callable(default) else type(default).__name__ + '()'}"


def call(function: Any, name: str) -> str:
    """Return the signature from the view of the caller."""
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
    returned = kind(signature.return_annotation, source)
    if function is not source and (inner := re.fullmatch(r"(?:Async)?Iterator\[(.+)\]", returned)):
        name, returned = f"with {name}", inner[1]
    tail = f" -> {returned}" if returned and returned != "None" else ""
    line = f"{name}({', '.join(parts)}){tail}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){tail}"


def _parameter(parameter: inspect.Parameter, owner: Any) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    text = kind(parameter.annotation, owner)
    if stars:
        return stars + parameter.name
    text = f": {text}" if text else ""
    if parameter.default is parameter.empty:
        return parameter.name + text
    return f"{parameter.name}{text} = {shown(parameter.default, owner)}"


def fields(cls: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default and meaning of each field of a dataclass."""
    comments_by_name = {**meanings(cls)}
    for base in reversed(cls.__mro__[:-1]):
        comments_by_name = {**comments_by_name, **comments(base)}
    for field in dataclasses.fields(cls):
        if field.name.startswith("_") or not field.init:
            continue
        default = ""
        if field.default is not dataclasses.MISSING:
            default = shown(field.default, cls)
        elif field.default_factory is not dataclasses.MISSING:
            default = _factory_default(field.default_factory)
        yield field.name, kind(field.type, cls), default, comments_by_name.get(field.name, "")


def _factory_default(factory: Callable[[], Any]) -> str:
    if factory.__name__ == "<lambda>" or factory is dict:
        return shown(factory())
    return f"{factory.__name__}()"


def attributes(cls: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and meaning of instance attributes and properties."""
    for base in reversed([base for base in cls.__mro__ if base.__module__.startswith("windlass")]):
        comments_by_name = comments(base)
        if "__init__" in vars(base) and not dataclasses.is_dataclass(base):
            for name, annotation in _assigned(vars(base)["__init__"]):
                yield name, annotation, comments_by_name.get(name, "")
        for name, annotation in inspect.get_annotations(base).items():
            if not dataclasses.is_dataclass(base) and not name.startswith(("_", "code")):
                yield name, kind(annotation, base), comments_by_name.get(name, "")
        for name, member in vars(base).items():
            if isinstance(member, property) and not name.startswith("_"):
                getter = inspect.unwrap(member.fget) if member.fget else member
                returned = kind(inspect.signature(getter).return_annotation, getter)  # type: ignore[arg-type]
                yield name, returned, " ".join(doc(member).split())


def _assigned(init: Any) -> Iterator[tuple[str, str]]:
    names = vars(sys.modules[init.__module__])
    parameters = inspect.signature(init).parameters
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init)))):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
            continue
        value = getattr(node, "value", None)
        annotation = ""
        if isinstance(node, ast.AnnAssign):
            annotation = ast.unparse(node.annotation)
        elif isinstance(value, ast.Name) and value.id in parameters:
            annotation = kind(parameters[value.id].annotation, init)
        elif isinstance(value, ast.Constant):
            annotation = type(value.value).__name__
        elif isinstance(value, ast.Call):
            called = names.get(ast.unparse(value.func))
            annotation = called.__name__ if isinstance(called, type) else ""
            if inspect.isfunction(called):
                annotation = kind(inspect.signature(called).return_annotation, called)
        yield target.attr, annotation


def methods(cls: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield each public method with its sync and async variants, in source order."""
    found: dict[str, Any] = {}
    for base in reversed([base for base in cls.__mro__ if base.__module__.startswith("windlass")]):
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if inspect.isfunction(inspect.unwrap(plain)) and not name.startswith("_"):
                found[name] = plain
    for name in found:
        variants = [other for other in found if other in {f"a{name}", f"a{name}_end"}]
        if name.startswith("a") and any(name in {f"a{other}", f"a{other}_end"} for other in found):
            continue
        yield name, [found[one] for one in [name, *variants]]
