"""URLs of stores: what is wrong with one, and how it may be shown to anybody.

A URL may hold a password, and one that is wrong may hold it anywhere. So every message shows it by
`public_url`, and what is refused is refused here, before a driver could quote it.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from windlass.core.errors import InvalidArgumentError

POSTGRES = ("postgresql", "postgres")
HTTP = ("https", "http")
_SCHEMES = ("memory", "sqlite", *POSTGRES, *HTTP)
_FORMS = "memory: or sqlite:///path/to/file.db or postgresql://user@host/database or https://server"
_QUOTED = (
    "write postgresql://user:password@host:5432/database, and in the password "
    "%40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %5B for [, %25 for %"
)
_KEY = re.compile(r"(wl_[0-9a-f]{12})_[A-Za-z0-9_-]+")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OPTION = re.compile(r"(?<=[?&])([^=&]*)=([^&]*)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NO_PORT = re.compile(r":(?!\d*(,|$))(?![0-9A-Fa-f:.]*\])")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,]+)(?::(\d{1,5}))?")
LAST_PORT = 65535


def public_url(url: str) -> str:
    """A URL as it may be shown to anybody: without its password, however wrong it is."""
    url = _KEY.sub(r"\1_***", _OPTION.sub(_hidden, url))
    match = _SCHEME.match(url)
    scheme = match[0] if match else ""
    user, at, rest = url[len(scheme) :].rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        if scheme.removesuffix("://").lower() in HTTP:
            return f"{scheme}***@{rest}"  # a server has no users: it may be a key
        return f"{scheme}{name}{':***' if colon else ''}@{rest}"
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if scheme and (port := _NO_PORT.search(authority)):
        # What stands for a port and is no number may be a password whose host was forgotten.
        return f"{scheme}{authority[: port.start()]}:***"
    return url


def _hidden(option: re.Match[str]) -> str:
    secret = unquote(option[1]).lower().endswith(("password", "key", "token"))
    return f"{option[1]}=***" if secret else option[0]


def split(url: str) -> SplitResult:
    """A URL in its parts; what no store could open, or would be cut off without a word, raises."""
    if CONTROL.search(url):
        raise wrong(url, "holds a control character")
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text may quote the password
        raise wrong(url, f"cannot be read; {_QUOTED}") from None
    if parts.scheme not in _SCHEMES:
        unknown = f"the unknown scheme {parts.scheme!r}" if parts.scheme else "no scheme"
        raise wrong(url, f"has {unknown}; expected {_FORMS}")
    if "#" in url:
        mend = "in a file's name, write %23" if parts.scheme == "sqlite" else _QUOTED
        raise wrong(url, f"holds a '#', which ends a URL; {mend}")
    if parts.scheme in POSTGRES:
        _check_server(url, parts)
    if parts.scheme in HTTP:
        _check_address(url, parts)
    return parts


def _check_address(url: str, parts: SplitResult) -> None:
    if "@" in url:
        raise wrong(
            url,
            "has an '@'; a key is no part of it: give key=, set WINDLASS_KEY, or write it in "
            "windlass.toml",
        )
    match = _HOST.fullmatch(parts.netloc)
    if match is None or int(match[2] or LAST_PORT) not in range(1, LAST_PORT + 1):
        raise wrong(url, "lacks a host, or has a port that is none; write https://host:8642")


def _check_server(url: str, parts: SplitResult) -> None:
    user, _, hosts = parts.netloc.rpartition("@")
    if "@" in user or "@" in parts.path or "@" in parts.query:
        raise wrong(url, f"has an '@' that stands for no host; {_QUOTED}")
    for host in hosts.split(",") if hosts else ():
        match = _HOST.fullmatch(host)
        if match is None or int(match[2] or LAST_PORT) not in range(1, LAST_PORT + 1):
            raise wrong(url, f"lacks a host, or has a port that is none; {_QUOTED}")


def wrong(url: str, problem: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the store URL {public_url(url)!r} {problem}")
