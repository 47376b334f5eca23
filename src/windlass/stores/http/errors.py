"""Translation of HTTP failures and error responses to Windlass errors.

A transient error (see `stores.is_transient`) has an OSError as its cause.
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
from windlass.stores.wire_format import error_class

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_REDIRECTS = range(300, 400)
_NOT_FOUND = 404
_GATEWAY_ERRORS = frozenset({502, 503, 504})
_DENIED = frozenset({401, 403, 421})
_CHECK_SERVER = "check that it is running, and its host and port"
_SET_KEY = (
    'set WINDLASS_KEY, pass key=, or write key = "wl_…" in windlass.toml; '
    "the server's operator creates one with windlass keys create"
)


def connection_error(config: HttpConfig, error: httpx.HTTPError) -> StoreUnavailableError:
    """Return the error for a request without a response; its outcome is unknown.

    The caller raises it from `os_error(error)`.
    """
    cause = os_error(error)
    reason = str(cause) or type(cause).__name__
    if cause is None:
        problem = f"cannot be reached: its certificate is not trusted ({_root_cause(error)})"
    elif isinstance(error, httpx.ConnectTimeout):
        problem = (
            f"cannot be reached: no connection within {config.connect_timeout:g} s; {_CHECK_SERVER}"
        )
    elif isinstance(error, NOT_SENT):
        problem = f"cannot be reached: {reason}; {_CHECK_SERVER}"
    elif isinstance(error, httpx.TimeoutException):
        problem = (
            f"did not respond within {config.timeout:g} s: the server or its store may be "
            "overloaded; retry, or check the server's log"
        )
    else:
        problem = (
            f"closed the connection before it responded ({reason}): it was stopped or restarted, "
            "or a proxy closed the connection; retry, or check their logs"
        )
    return StoreUnavailableError(f"the server at {config.base} {problem}")


def os_error(error: httpx.HTTPError) -> OSError | None:
    """Return the operating system error behind a failure; None if a retry cannot succeed."""
    inner = _root_cause(error)
    if isinstance(inner, ssl.SSLError):
        return None
    return inner if isinstance(inner, OSError) else ConnectionError(str(error))


def _root_cause(error: BaseException) -> BaseException:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
    return error


def response_error(config: HttpConfig, response: httpx.Response) -> WindlassError:
    """Return the error that an error response describes."""
    problem = _problem(response)
    code, status = problem.get("code"), response.status_code
    detail = str(problem.get("detail") or response.reason_phrase or "no reason given")
    if code is None:
        return _foreign_response(config, response)
    if status in _DENIED:
        return _denied(config, status, detail)
    if code == "protocol":
        return SchemaError(
            f"the server at {config.base} runs another version: {detail}; "
            "install the same version of Windlass on client and server"
        )
    cls = error_class(str(code))
    if cls is None:
        advice = f"; {problem['advice']}" if problem.get("advice") else ""
        return _unavailable(config, f"{detail} (HTTP {status}){advice}")
    if issubclass(cls, StoreError):
        detail = f"the server at {config.base}: {detail}"
    error = cls(detail)
    if isinstance(error, StoreUnavailableError):
        error.__cause__ = ConnectionError(detail)
    return error


def _problem(response: httpx.Response) -> dict[str, Any]:
    if "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        problem = response.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _denied(config: HttpConfig, status: int, detail: str) -> StoreDeniedError:
    if config.key is None:
        return StoreDeniedError(f"the server at {config.base} requires an API key: {_SET_KEY}")
    if status == httpx.codes.UNAUTHORIZED:
        return StoreDeniedError(
            f"the server at {config.base} rejected key {config.key_id}: {detail}; {_SET_KEY}"
        )
    return StoreDeniedError(
        f"the server at {config.base} denied this to key {config.key_id}: {detail}"
    )


def _foreign_response(config: HttpConfig, response: httpx.Response) -> StoreError:
    status = response.status_code
    if status in _REDIRECTS:
        target = response.headers.get("location", "another address")
        return StoreDeniedError(
            f"{config.base} redirects to {target[:200]}, and a key is not sent there; "
            "use the server's own address"
        )
    if status in _DENIED:
        return _denied(config, status, f"a proxy in front of it returned HTTP {status}")
    if status == _NOT_FOUND:
        return _unavailable(
            config, "there is no Windlass server at this address, or an older version"
        )
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return _unavailable(config, f"a proxy in front of it limits the rate (HTTP {status}); wait")
    if status in _GATEWAY_ERRORS:
        return _unavailable(
            config,
            f"a proxy in front of it returned HTTP {status}: the server is down or too slow",
        )
    content_type = response.headers.get("content-type", "no content type")
    return _unavailable(config, f"HTTP {status}, {content_type:.80}: this is not a Windlass server")


def _unavailable(config: HttpConfig, reason: str) -> StoreUnavailableError:
    error = StoreUnavailableError(f"the server at {config.base} is unavailable: {reason}")
    error.__cause__ = ConnectionError(reason)
    return error
