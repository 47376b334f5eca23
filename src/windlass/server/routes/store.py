"""The store protocol: each verb of the contract as a route, for handles of `stores.http`.

It is no part of the documented API: both ends of it are Windlass, and say which version they speak.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import Request, Response, status

from windlass.server.auth.authenticator import Need
from windlass.server.auth.task_tokens import NAME
from windlass.server.context import Here, Visit
from windlass.server.problems import Refusal
from windlass.server.remote import record_access, store_access
from windlass.server.streaming import sse
from windlass.server.streaming.event_format import message
from windlass.server.streaming.hub import Wanted
from windlass.server.version import version
from windlass.stores import rpc

LONGEST_WAIT = 20.0  # seconds of one request
Call = Callable[..., Awaitable[Any]]
Endpoint = Callable[..., Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Verb:
    """What the door asks for, and how it is done for a caller; None is by the store itself.

    Where rights depend on what is asked for, the door asks for the least, and `call` for the rest.
    """

    need: Need
    call: Call | None = None


VERBS = {
    "ping": Verb(Need.READ),
    "enqueue": Verb(Need.READ, store_access.enqueue),
    "claim": Verb(Need.WORK),
    "extend": Verb(Need.WORK),
    "apply": Verb(Need.READ, store_access.apply),
    "record": Verb(Need.WORK),
    "wait": Verb(Need.WORK),
    "due": Verb(Need.WORK),
    "expired": Verb(Need.WORK),
    "prune": Verb(Need.WORK),
    "cancel": Verb(Need.READ, store_access.cancel),
    "signal": Verb(Need.READ, store_access.signal),
    "delete": Verb(Need.REMOVE, store_access.delete),
    "pause": Verb(Need.OPERATE, store_access.pause),
    "get": Verb(Need.READ, store_access.get),
    "find": Verb(Need.READ, store_access.find),
    "count": Verb(Need.READ, store_access.count),
    "stats": Verb(Need.SURVEY),
    "failures": Verb(Need.READ, store_access.failures),
    "gates": Verb(Need.SURVEY),
    "rollups": Verb(Need.SURVEY),
    "events": Verb(Need.READ, store_access.events),
    "attempts": Verb(Need.READ, store_access.attempts),
    "checkpoints": Verb(Need.READ, store_access.checkpoints),
    "edges": Verb(Need.READ, store_access.edges),
    "flows": Verb(Need.READ, store_access.flows),
    "newest_flows": Verb(Need.READ, store_access.newest_flows),
    "put_records": Verb(Need.READ, record_access.put_records),
    "get_records": Verb(Need.READ, record_access.get_records),
    "list_records": Verb(Need.READ, record_access.list_records),
    "delete_records": Verb(Need.READ, record_access.delete_records),
}


def _check_protocol(request: Request) -> None:
    theirs = request.headers.get(rpc.PROTOCOL_HEADER)
    if theirs != rpc.PROTOCOL:
        raise Refusal(
            "protocol",
            f"the store protocol here is {rpc.PROTOCOL} (Windlass {version()}), "
            f"and the request's {'is not named' if theirs is None else f'is {theirs!r:.20}'}",
        )


def _answer(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def endpoint(name: str) -> Endpoint:
    """The route of one verb."""
    verb = VERBS[name]

    async def call(here: Here, request: Request) -> Response:
        _check_protocol(request)
        arguments = rpc.asked(name).load(await request.body())
        if verb.call is not None:
            answer = await verb.call(here, **arguments)
        else:
            answer = await getattr(here.client.store, name)(**arguments)
        return _answer(rpc.tell(name, answer))

    return {"claim": claim, "wait": wait}.get(name, call)


async def hello(here: Here, request: Request) -> Response:
    _check_protocol(request)
    caller = here.caller
    told = rpc.Hello(
        version=version(),
        capabilities=here.client.store.capabilities,
        max_body=here.site.config.max_body,
        wait=LONGEST_WAIT,
        name=caller.name,
        roles=tuple(sorted(caller.roles)),
        owner=caller.owner,
        team=caller.team,
    )
    return _answer(rpc.greeting().dump(answer=told))


async def why(here: Here, request: Request) -> Response:
    """As the API tells it: whoever sees a job may know what keeps it from running."""
    _check_protocol(request)
    row = await here.job(rpc.why_asked().load(await request.body())["job_id"])
    return _answer(rpc.why_answered().dump(answer=await here.client.why(row.id)))


async def rotate(here: Here, request: Request) -> Response:
    """The keys that task tokens are signed with stay here."""
    _check_protocol(request)
    await here.record("rotate signing key", NAME)
    await here.site.signing.rotate()
    return _answer(rpc.done().dump(answer=None))


async def claim(here: Here, request: Request) -> Response:
    """With how far the news was heard of before, for the next wait."""
    _check_protocol(request)
    arguments = rpc.asked("claim").load(await request.body())
    heard = await here.site.news.cursor()
    rows = await here.client.store.claim(**arguments)
    response = _answer(rpc.tell("claim", rows))
    response.headers[rpc.NEWS_HEADER] = heard
    return response


async def wait(here: Here, request: Request) -> Response:
    """Until there is news, the time is over, the server stops, or whoever asked has gone."""
    _check_protocol(request)
    timeout = rpc.asked("wait").load(await request.body())["timeout"]
    heard = request.headers.get(rpc.NEWS_HEADER, "")
    seconds = max(0.0, min(timeout, LONGEST_WAIT))
    with here.waiting() as ending:
        waiting = asyncio.create_task(here.site.news.wait(heard, seconds))
        others = [asyncio.create_task(ending.wait()), asyncio.create_task(_gone(request))]
        try:
            await asyncio.wait({waiting, *others}, return_when=asyncio.FIRST_COMPLETED)
            return _answer(rpc.tell("wait", waiting.done() and waiting.result()))
        finally:
            for one in (waiting, *others):
                one.cancel()
            await asyncio.wait({waiting, *others})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def tail(here: Here, request: Request) -> Response:
    """The log of a job from a cursor on, as a stream; 204 when there is no more, and never will."""
    _check_protocol(request)
    arguments = rpc.tail_asked().load(await request.body())
    job_id, after = arguments["job_id"], max(0, arguments["after"])
    row = await here.job(job_id)
    if row.final and after >= row.seq:
        return Response(status_code=status.HTTP_204_NO_CONTENT, headers=_alive(here))
    # Who has seen more than there is cannot share a reader with others.
    feed = _shared(here, job_id, after) if after <= row.seq else _alone(here, job_id, after)
    stream = sse.EventStream(here.site, here.caller, feed, row.correlation_id)
    stream.headers.update(_alive(here))
    return stream


def _alive(here: Visit) -> dict[str, str]:
    return {rpc.KEEPALIVE_HEADER: str(here.site.config.keepalive)}


async def _shared(here: Visit, job_id: UUID, after: int) -> AsyncGenerator[bytes, None]:
    async with aclosing(here.site.hub.follow(job_id, Wanted(after=after))) as found:
        async for lines in found:
            yield b"".join(line.stored for line in lines)


async def _alone(here: Visit, job_id: UUID, after: int) -> AsyncGenerator[bytes, None]:
    async for event in here.client.events(job_id, after):
        data = rpc.told_event().dump(event=event).decode()
        yield message(rpc.EVENT, data, event.wire_id)
