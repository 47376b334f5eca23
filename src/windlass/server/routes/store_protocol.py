"""Store protocol: one route for each method of the Store contract, for handles of `stores.http`.

It is not part of the documented API: both ends are Windlass, and check the protocol version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import Request, Response, status

from windlass.core.clock import MAX_INSTANT
from windlass.core.size_limits import check_text
from windlass.core.version import version
from windlass.server.auth.permissions import Permission
from windlass.server.auth.token_signer import SIGNING_RECORD
from windlass.server.context import Ctx, RequestContext
from windlass.server.problem_details import ApiError
from windlass.server.remote import apply_access, insights_access, record_access, store_access
from windlass.server.streaming import sse
from windlass.server.streaming.event_encoder import sse_message
from windlass.server.streaming.stream_filter import StreamFilter
from windlass.stores import wire_format

MAX_WAIT = 20.0  # seconds of one request
MAX_LIMIT = 10_000  # items that one request may ask for
Call = Callable[..., Awaitable[Any]]
Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class StoreMethod:
    """The permission that a method needs, and its function; None calls the store directly.

    Where the permission depends on the arguments, it is the least one, and `call` checks the rest.
    """

    permission: Permission
    call: Call | None = None


STORE_METHODS = {
    "ping": StoreMethod(Permission.READ),
    "enqueue": StoreMethod(Permission.READ, store_access.enqueue),
    "claim": StoreMethod(Permission.WORK),
    "extend": StoreMethod(Permission.WORK),
    "apply": StoreMethod(Permission.READ, apply_access.apply),
    "record": StoreMethod(Permission.WORK),
    "wait": StoreMethod(Permission.WORK),
    "due": StoreMethod(Permission.WORK),
    "prune": StoreMethod(Permission.WORK),
    "delete": StoreMethod(Permission.DELETE, store_access.delete),
    "get": StoreMethod(Permission.READ, store_access.get),
    "find": StoreMethod(Permission.READ, store_access.find),
    "count": StoreMethod(Permission.READ, insights_access.count),
    "stats": StoreMethod(Permission.MONITOR),
    "failures": StoreMethod(Permission.READ, insights_access.failures),
    "gates": StoreMethod(Permission.MONITOR),
    "rollups": StoreMethod(Permission.MONITOR),
    "events": StoreMethod(Permission.READ, store_access.events),
    "attempts": StoreMethod(Permission.READ, insights_access.attempts),
    "checkpoints": StoreMethod(Permission.READ, store_access.checkpoints),
    "edges": StoreMethod(Permission.READ, store_access.edges),
    "flows": StoreMethod(Permission.READ, insights_access.flows),
    "newest_flows": StoreMethod(Permission.READ, insights_access.newest_flows),
    "put_records": StoreMethod(Permission.READ, record_access.put_records),
    "get_records": StoreMethod(Permission.READ, record_access.get_records),
    "list_records": StoreMethod(Permission.READ, record_access.list_records),
    "delete_records": StoreMethod(Permission.READ, record_access.delete_records),
}


def _check_protocol(request: Request) -> None:
    protocol = request.headers.get(wire_format.PROTOCOL_HEADER)
    if protocol != wire_format.PROTOCOL:
        raise ApiError(
            "protocol",
            f"this server uses store protocol {wire_format.PROTOCOL} (Windlass {version()}), "
            f"the request {'names none' if protocol is None else f'uses {protocol!r:.20}'}",
        )


def _bounded(arguments: dict[str, Any]) -> dict[str, Any]:
    """Clamp numbers to what every store can handle, and check names."""
    for name in ("since", "until"):
        if name in arguments:
            arguments[name] = max(0, min(arguments[name], MAX_INSTANT))
    if arguments.get("limit") is not None:
        arguments["limit"] = max(0, min(arguments["limit"], MAX_LIMIT))
    for name in arguments.get("names", ()):
        check_text("the name of a limit", name)
    return arguments


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def endpoint(name: str) -> Endpoint:
    """Return the endpoint of a method."""
    store_method = STORE_METHODS[name]

    async def call(ctx: Ctx, request: Request) -> Response:
        _check_protocol(request)
        arguments = _bounded(wire_format.request_schema(name).load(await request.body()))
        if store_method.call is not None:
            result = await store_method.call(ctx, **arguments)
        else:
            store = ctx.client.store
            target = store.insights if name in wire_format.INSIGHTS else store
            result = await getattr(target, name)(**arguments)
        return _json(wire_format.encode_response(name, result))

    return {"claim": claim, "wait": wait}.get(name, call)


async def hello(ctx: Ctx, request: Request) -> Response:
    _check_protocol(request)
    caller = ctx.caller
    greeting = wire_format.Hello(
        version=version(),
        capabilities=ctx.client.store.capabilities,
        max_body=ctx.server.config.max_body,
        wait=MAX_WAIT,
        name=caller.name,
        roles=tuple(sorted(caller.roles)),
        owner=caller.owner,
        team=caller.team,
    )
    return _json(wire_format.hello_response().dump(result=greeting))


async def why(ctx: Ctx, request: Request) -> Response:
    """Return the diagnosis of a visible job."""
    _check_protocol(request)
    row = await ctx.job(wire_format.why_request().load(await request.body())["job_id"])
    return _json(wire_format.why_response().dump(result=await ctx.client.why(row.id)))


async def rotate(ctx: Ctx, request: Request) -> Response:
    """Rotate the signing key; it never leaves the server."""
    _check_protocol(request)
    await ctx.audit("rotate signing key", SIGNING_RECORD)
    await ctx.server.token_signer.rotate()
    return _json(wire_format.empty_response().dump(result=None))


async def claim(ctx: Ctx, request: Request) -> Response:
    """Claim jobs; the response header has the wakeup cursor for the next wait."""
    _check_protocol(request)
    arguments = wire_format.request_schema("claim").load(await request.body())
    cursor = await ctx.server.wakeups.cursor()
    rows = await ctx.client.store.claim(**arguments)
    response = _json(wire_format.encode_response("claim", rows))
    response.headers[wire_format.WAKEUPS_HEADER] = cursor
    return response


async def wait(ctx: Ctx, request: Request) -> Response:
    """Wait for a wakeup, the timeout, the server's shutdown, or the client's disconnect."""
    _check_protocol(request)
    timeout = wire_format.request_schema("wait").load(await request.body())["timeout"]
    cursor = request.headers.get(wire_format.WAKEUPS_HEADER, "")
    seconds = max(0.0, min(timeout, MAX_WAIT))
    with ctx.long_poll() as stop_event:
        wakeup = asyncio.create_task(ctx.server.wakeups.wait(cursor, seconds))
        others = [
            asyncio.create_task(stop_event.wait()),
            asyncio.create_task(_disconnected(request)),
        ]
        try:
            await asyncio.wait({wakeup, *others}, return_when=asyncio.FIRST_COMPLETED)
            return _json(wire_format.encode_response("wait", wakeup.done() and wakeup.result()))
        finally:
            for task in (wakeup, *others):
                task.cancel()
            await asyncio.wait({wakeup, *others})


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def tail(ctx: Ctx, request: Request) -> Response:
    """Stream the log of a job after a cursor; 204 if the job has ended before it."""
    _check_protocol(request)
    arguments = wire_format.tail_request().load(await request.body())
    job_id, after = arguments["job_id"], max(0, arguments["after"])
    row = await ctx.job(job_id)
    if row.final and after >= row.seq:
        return Response(status_code=status.HTTP_204_NO_CONTENT, headers=_keepalive_header(ctx))
    # A cursor beyond the end cannot use the shared reader.
    feed = _shared_feed(ctx, job_id, after) if after <= row.seq else _own_feed(ctx, job_id, after)
    stream = sse.EventStream(ctx.server, ctx.caller, feed, row.correlation_id)
    stream.headers.update(_keepalive_header(ctx))
    return stream


def _keepalive_header(ctx: RequestContext) -> dict[str, str]:
    return {wire_format.KEEPALIVE_HEADER: str(ctx.server.config.keepalive)}


async def _shared_feed(
    ctx: RequestContext, job_id: UUID, after: int
) -> AsyncGenerator[bytes, None]:
    async with aclosing(ctx.server.hub.follow(job_id, StreamFilter(after=after))) as batches:
        async for events in batches:
            yield b"".join(event.for_store_tail for event in events)


async def _own_feed(ctx: RequestContext, job_id: UUID, after: int) -> AsyncGenerator[bytes, None]:
    async for event in ctx.client.events(job_id, after):
        data = wire_format.event_message().dump(event=event).decode()
        yield sse_message(wire_format.EVENT, data, event.wire_id)
