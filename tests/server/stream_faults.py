"""ASGI middleware that reorders, repeats and falsifies events of streams."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MessageFault = Callable[[Message], list[Message]]


def reorder_and_repeat() -> MessageFault:
    """Move each third event before its predecessor, and send every event twice."""
    held: list[Message] = []
    count = 0

    def apply_fault(message: Message) -> list[Message]:
        nonlocal count
        if not message.get("body", b"").startswith(b"id:"):
            return [*take(held), message]
        count += 1
        if count % 3 == 2:
            held.append(message)
            return []
        return [message, message, *take(held)]

    return apply_fault


def take(held: list[Message]) -> list[Message]:
    found, held[:] = held * 2, []
    return found


def split_events(message: Message) -> list[Message]:
    """Split a message with several events into one message for each event."""
    events = [event + b"\n\n" for event in message.get("body", b"").split(b"\n\n") if event]
    if len(events) < 2:
        return [message]
    more = [{**message, "body": event, "more_body": True} for event in events]
    return [*more[:-1], {**message, "body": events[-1]}]


def falsify_progress() -> MessageFault:
    """Replace 60 % by 15 %, below the earlier progress."""
    result, lied = b'"progressPct":60', b'"progressPct":15'
    return lambda message: [
        {**message, "body": message["body"].replace(result, lied)} if "body" in message else message
    ]


class FaultyStreams:
    """An ASGI application whose response messages pass through a fault."""

    def __init__(self, app: ASGIApp, make: Callable[[], MessageFault]) -> None:
        self._app = app
        self._make_fault = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        apply_fault = self._make_fault()

        async def pass_on(message: Message) -> None:
            for part in split_events(message):
                for item in apply_fault(part):
                    await send(item)

        await self._app(scope, receive, pass_on)
