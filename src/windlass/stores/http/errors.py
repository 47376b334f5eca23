"""What went wrong on the way to a server, or there, as an error of ours: in one place.

An error of which `stores.may_pass` says that waiting may mend it has an OSError as its cause.
"""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from windlass.core.errors import (
    SchemaError,
    StoreDeniedError,
    StoreError,
    StoreUnavailableError,
    WindlassError,
)
from windlass.stores.http.config import HttpConfig
from windlass.stores.rpc import of_code

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_REDIRECTS = range(300, 400)
_NOT_FOUND = 404
_BEHIND = frozenset({502, 503, 504})
_DENIED = frozenset({401, 403, 421})
_UP = "is it up, and are host and port right?"
_MEND = (
    'set WINDLASS_KEY, give key=, or write key = "wl_…" in windlass.toml; '
    "its operator makes one with windlass keys create"
)


def lost(config: HttpConfig, error: httpx.HTTPError) -> StoreUnavailableError:
    """The server was not reached, or its answer did not come: nobody knows what became of it.

    To be raised from `os_error(error)`.
    """
    cause = os_error(error)
    why = str(cause) or type(cause).__name__
    if cause is None:
        told = f"cannot be reached: its certificate cannot be trusted ({_deepest(error)})"
    elif isinstance(error, httpx.ConnectTimeout):
        told = f"cannot be reached: no connection within {config.connect:g} s; {_UP}"
    elif isinstance(error, NOT_SENT):
        told = f"cannot be reached: {why}; {_UP}"
    elif isinstance(error, httpx.TimeoutException):
        told = (
            f"was asked, and there was no answer within {config.timeout:g} s: it has too much to "
            "do, or its store has; ask again, or look at its log"
        )
    else:
        told = (
            f"was lost before its answer had come ({why}): it ended or was restarted, or a proxy "
            "before it cut the connection; ask again, or look at their logs"
        )
    return StoreUnavailableError(f"the server at {config.base} {told}")


def os_error(error: httpx.HTTPError) -> OSError | None:
    """What the system said; None where that will not pass by itself."""
    inner = _deepest(error)
    if isinstance(inner, ssl.SSLError):
        return None
    return inner if isinstance(inner, OSError) else ConnectionError(str(error))


def _deepest(error: BaseException) -> BaseException:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
    return error


def refused(config: HttpConfig, response: httpx.Response) -> WindlassError:
    """What an answer that is none says."""
    said = _problem(response)
    code, status = said.get("code"), response.status_code
    detail = str(said.get("detail") or response.reason_phrase or "no reason given")
    if code is None:
        return _not_ours(config, response)
    if status in _DENIED:
        return _denied(config, status, detail)
    if code == "protocol":
        return SchemaError(
            f"the server at {config.base} is of another version: {detail}; "
            "install the same version of Windlass here and there"
        )
    kind = of_code(str(code))
    if kind is None:
        advice = f"; {said['advice']}" if said.get("advice") else ""
        return _away(config, f"{detail} (HTTP {status}){advice}")
    if issubclass(kind, StoreError):
        detail = f"the server at {config.base}: {detail}"
    error = kind(detail)
    if isinstance(error, StoreUnavailableError):
        error.__cause__ = ConnectionError(detail)
    return error


def _problem(response: httpx.Response) -> dict[str, Any]:
    if "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        said = response.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _denied(config: HttpConfig, status: int, detail: str) -> StoreDeniedError:
    if config.key is None:
        return StoreDeniedError(f"the server at {config.base} asks for an API key: {_MEND}")
    if status == httpx.codes.UNAUTHORIZED:
        return StoreDeniedError(
            f"the server at {config.base} refuses key {config.key_id}: {detail}; {_MEND}"
        )
    return StoreDeniedError(
        f"the server at {config.base} does not let key {config.key_id} do this: {detail}"
    )


def _not_ours(config: HttpConfig, response: httpx.Response) -> StoreError:
    status = response.status_code
    if status in _REDIRECTS:
        there = response.headers.get("location", "another address")
        return StoreDeniedError(
            f"{config.base} sends to {there[:200]}, and a key is not carried there; "
            "name the server's own address"
        )
    if status in _DENIED:
        return _denied(config, status, f"something before it answers HTTP {status}")
    if status == _NOT_FOUND:
        return _away(config, "there is no Windlass server at this address, or an older one")
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return _away(config, f"a proxy before it says HTTP {status}: it is asked too often; wait")
    if status in _BEHIND:
        return _away(
            config,
            f"a proxy before it says HTTP {status}: the server behind is down, or too slow for it",
        )
    kind = response.headers.get("content-type", "no type")
    return _away(
        config, f"what answers there says HTTP {status}, {kind:.80}: that is no Windlass server"
    )


def _away(config: HttpConfig, why: str) -> StoreUnavailableError:
    failed = StoreUnavailableError(f"the server at {config.base} cannot answer: {why}")
    failed.__cause__ = ConnectionError(why)
    return failed
