"""Parsing, validation and redaction of store URLs.

A URL may contain a password, and a malformed one may contain it anywhere. So every message shows
the URL through `public_url`. Malformed URLs are refused here, before a driver could quote them.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from windlass.core.errors import InvalidArgumentError

POSTGRES = ("postgresql", "postgres")
HTTP = ("https", "http")
_SCHEMES = ("memory", "sqlite", *POSTGRES, *HTTP)
_FORMS = "memory: or sqlite:///path/to/file.db or postgresql://user@host/database or https://server"
_ESCAPES = (
    "use postgresql://user:password@host:5432/database, and in the password "
    "%40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %5B for [, %25 for %"
)
_KEY = re.compile(r"(wl_[0-9a-f]{12})_[A-Za-z0-9_-]+")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OPTION = re.compile(r"(?<=[?&])([^=&]*)=([^&]*)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BAD_PORT = re.compile(r":(?!\d*(,|$))(?![0-9A-Fa-f:.]*\])")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,]+)(?::(\d{1,5}))?")
MAX_PORT = 65535
# Options per URL scheme. PostgreSQL options are passed on to its driver.
_OPTIONS = {
    "memory": set[str](),
    "sqlite": {"durability"},
    "http": set[str](),
    "https": set[str](),
}


def public_url(url: str) -> str:
    """Return the URL without its password or key, even if it is malformed."""
    url = _KEY.sub(r"\1_***", _OPTION.sub(_redact, url))
    match = _SCHEME.match(url)
    scheme = match[0] if match else ""
    user, at, rest = url[len(scheme) :].rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        if scheme.removesuffix("://").lower() in HTTP:
            return f"{scheme}***@{rest}"  # HTTP URLs have no user: it may be a key
        return f"{scheme}{name}{':***' if colon else ''}@{rest}"
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if scheme and (port := _BAD_PORT.search(authority)):
        # A port that is not a number may be a password whose host is missing.
        return f"{scheme}{authority[: port.start()]}:***"
    return url


def _redact(option: re.Match[str]) -> str:
    secret = unquote(option[1]).lower().endswith(("password", "key", "token"))
    return f"{option[1]}=***" if secret else option[0]


def split(url: str) -> SplitResult:
    """Split a URL; raise InvalidArgumentError if it is malformed, or if a part would be lost."""
    if CONTROL.search(url):
        raise invalid_url(url, "contains a control character")
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may quote the password
        raise invalid_url(url, f"cannot be parsed; {_ESCAPES}") from None
    if parts.scheme not in _SCHEMES:
        unknown = f"the unknown scheme {parts.scheme!r}" if parts.scheme else "no scheme"
        raise invalid_url(url, f"has {unknown}; expected {_FORMS}")
    if "#" in url:
        fix = "in a file name, write it as %23" if parts.scheme == "sqlite" else _ESCAPES
        raise invalid_url(url, f"contains a '#', which starts a fragment; {fix}")
    if parts.scheme in POSTGRES:
        _check_postgres(url, parts)
    if parts.scheme in HTTP:
        _check_http(url, parts)
    return parts


def parse(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Split a URL and its options; raise InvalidArgumentError if it names no store."""
    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - _OPTIONS.get(parts.scheme, set(options))):
        names = ", ".join(unknown)
        raise invalid_url(url, f"has unknown options: {names} (write a '?' in a file name as %3F)")
    return parts, options


def sqlite_path(url: str) -> Path | None:
    """Return the path of a SQLite URL; None for other stores."""
    parts, _ = parse(url)
    return Path(file_path(url, parts)).absolute() if parts.scheme == "sqlite" else None


def file_path(url: str, parts: SplitResult) -> str:
    """Return the path of the file that a SQLite URL names."""
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path.strip("/"):
        raise invalid_url(
            url,
            "names no file: use sqlite:///file.db (relative, three slashes) "
            "or sqlite:////path/file.db (absolute, four)",
        )
    if CONTROL.search(path):
        raise invalid_url(url, "contains a control character")
    return path


def _check_http(url: str, parts: SplitResult) -> None:
    if "@" in url:
        raise invalid_url(
            url,
            "contains an '@'; do not put the key into the URL: pass key=, set WINDLASS_KEY, or "
            "write it in windlass.toml",
        )
    match = _HOST.fullmatch(parts.netloc)
    if match is None or int(match[2] or MAX_PORT) not in range(1, MAX_PORT + 1):
        raise invalid_url(url, "has no host or an invalid port; use https://host:8642")


def _check_postgres(url: str, parts: SplitResult) -> None:
    user, _, hosts = parts.netloc.rpartition("@")
    if "@" in user or "@" in parts.path or "@" in parts.query:
        raise invalid_url(url, f"has an '@' in the wrong place; {_ESCAPES}")
    for host in hosts.split(",") if hosts else ():
        match = _HOST.fullmatch(host)
        if match is None or int(match[2] or MAX_PORT) not in range(1, MAX_PORT + 1):
            raise invalid_url(url, f"has no host or an invalid port; {_ESCAPES}")


def invalid_url(url: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the store URL {public_url(url)!r} {problem}")
