"""What happens to every request, whichever route takes it: limits, the door, errors, headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from windlass.server.auth.authenticator import NOBODY, By, Need
from windlass.server.config import ServerConfig
from windlass.server.context import Site, Visit
from windlass.server.drain_body import Heard
from windlass.server.problems import Refusal, answer

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
STRANGERS = 4096  # bytes that somebody may send who has shown no key yet
_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
PARAMETERS = 500  # in an address
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Limited(Request):
    """A request whose body has an end, which comes soon, and whose JSON has a bottom."""

    def __init__(self, request: Request, max_body: int, config: ServerConfig) -> None:
        super().__init__(request.scope, request.receive)
        self._max_body = max_body
        self._max_depth = config.max_depth
        self._patience = config.patience

    async def stream(self) -> AsyncGenerator[bytes, None]:
        size = 0
        length = self.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and len(length) < 20:  # noqa: PLR2004 - digits
            self._check_size(int(length))
        async for chunk in super().stream():
            size += len(chunk)
            self._check_size(size)
            yield chunk

    def _check_size(self, size: int) -> None:
        if size > self._max_body:
            raise Refusal("too_large", f"the request is over its limit of {self._max_body:,} bytes")

    async def body(self) -> bytes:
        try:
            async with asyncio.timeout(self._patience):
                return await super().body()
        except TimeoutError:
            detail = f"its body did not come within {self._patience:g} s"
            raise Refusal("too_slow", detail, {"Connection": "close"}) from None

    async def json(self) -> Any:
        body = await self.body()
        try:
            value = json.loads(body, parse_constant=_no_constant)
        except RecursionError:
            raise self._too_deep() from None
        except UnicodeDecodeError:
            raise Refusal("bad_request", "the request is not UTF-8") from None
        if _deeper_than(value, self._max_depth):
            raise self._too_deep()
        return value

    def _too_deep(self) -> Refusal:
        return Refusal("bad_request", f"the JSON is nested deeper than {self._max_depth} levels")


def _no_constant(name: str) -> Any:
    raise Refusal("bad_request", f"{name} is no JSON; leave it out, or send null")


def _deeper_than(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def guarded(site: Site, need: Need, by: frozenset[By] = frozenset()) -> type[APIRoute]:
    """Routes of this site that ask for this."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Handler:
            inner = super().get_route_handler()
            takes_body = self.body_field is not None

            async def handle(request: Request) -> Response:
                heard = Heard(request.receive)
                request = Request(request.scope, heard)
                try:
                    response = await _handle(request, inner, takes_body=takes_body)
                except Exception as error:  # noqa: BLE001 - each is told as a problem
                    response = answer(error, request)
                    await heard.out(request)
                except asyncio.CancelledError:
                    if not site.hub.closed:
                        raise
                    response = answer(Refusal("stopping", "there was no time left"), request)
                given = {name for name, _ in response.raw_headers}
                response.raw_headers.extend(pair for pair in _RAW if pair[0] not in given)
                return response

            return handle

    async def _handle(request: Request, inner: Handler, *, takes_body: bool) -> Response:
        _check_query(request)
        caller = await site.door.admit(request, need, by)
        if takes_body:
            _check_json(request)
        request.state.visit = Visit(site, caller)
        config = site.config
        most = min(STRANGERS, config.max_body) if caller is NOBODY else config.max_body
        return await inner(Limited(request, most, config))

    return Guarded


def _check_query(request: Request) -> None:
    """Each that is not known would be told as a mistake: of thousands, that takes seconds."""
    found = request.scope["query_string"].count(b"&") + 1
    if found > PARAMETERS:
        raise Refusal("bad_request", f"it has {found:,} parameters, the limit is {PARAMETERS}")


def _check_json(request: Request) -> None:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind.lower() != "application/json":
        raise Refusal("media_type", f"the request is {kind}; this server speaks JSON")
