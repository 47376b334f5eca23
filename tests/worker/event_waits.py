"""Waits of tests: for an event of a job, or for a condition; each has a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from windlass import Job
from windlass.core.event import Event, EventType

WAIT_TIMEOUT = 20.0  # seconds before a test fails; the awaited event takes milliseconds


async def events_of(job: Job[Any], *kinds: EventType) -> list[Event]:
    """Return the log of a finished job, or only the events of these kinds."""
    return [event async for event in job.aevents() if not kinds or event.type in kinds]


async def wait_for_event(job: Job[Any], wanted: Callable[[Event], bool]) -> Event:
    """Follow the job and return its first wanted event."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        async for event in job.aevents():
            if wanted(event):
                return event
    raise AssertionError("the job ended without the wanted event")


def is_running(event: Event) -> bool:
    """For `wait_for_event`: the job is running."""
    return event.data.get("status") == "running"


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def set_event() -> asyncio.Event:
    """Return an event that is already set."""
    event = asyncio.Event()
    event.set()
    return event
