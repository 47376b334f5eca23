"""Somebody between a server and its readers, who meddles with streams."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MessageFault = Callable[[Message], list[Message]]


def reorder_and_repeat() -> MessageFault:
    """Each third event comes before the one that it follows, and every event comes twice."""
    held: list[Message] = []
    count = 0

    def meddle(message: Message) -> list[Message]:
        nonlocal count
        if not message.get("body", b"").startswith(b"id:"):
            return [*taken(held), message]
        count += 1
        if count % 3 == 2:
            held.append(message)
            return []
        return [message, message, *taken(held)]

    return meddle


def taken(held: list[Message]) -> list[Message]:
    found, held[:] = held * 2, []
    return found


def apart(message: Message) -> list[Message]:
    """Events that come together, one by one."""
    events = [event + b"\n\n" for event in message.get("body", b"").split(b"\n\n") if event]
    if len(events) < 2:
        return [message]
    more = [{**message, "body": event, "more_body": True} for event in events]
    return [*more[:-1], {**message, "body": events[-1]}]


def falsify_progress() -> MessageFault:
    """The job was at 40 %, then it says 15."""
    result, lied = b'"progressPct":60', b'"progressPct":15'
    return lambda message: [
        {**message, "body": message["body"].replace(result, lied)} if "body" in message else message
    ]


class FaultyStreams:
    """The server, with somebody in between who meddles with its streams."""

    def __init__(self, app: ASGIApp, make: Callable[[], MessageFault]) -> None:
        self._app = app
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        meddle = self._make()

        async def pass_on(message: Message) -> None:
            for part in apart(message):
                for item in meddle(part):
                    await send(item)

        await self._app(scope, receive, pass_on)
