"""Following one job's log: what is stored, then what comes, with no gap between the two."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from windlass.core.event import Event
from windlass.store import Store
from windlass.stores.wakeup import Bulletin

PAGE = 100  # events that are read at a time
POLL = 1.0  # seconds between looks when no hint arrives


async def tail(
    store: Store, news: Bulletin, job_id: UUID, after: int, poll: float = POLL
) -> AsyncIterator[Event]:
    """Ends after the final event, or when the job is unknown or deleted."""
    with news.follow(job_id) as signal:
        while True:
            seen = signal.count
            page = await store.events(job_id, after, PAGE)
            if page is None:
                return
            for event in page.events:
                after = event.seq
                yield event
            if page.ended:
                return
            if len(page.events) < PAGE:  # that was all; what came since is told by the signal
                await signal.wait(seen, poll)
