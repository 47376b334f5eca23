"""Live tail of one job's events: stored events first, then new ones, without a gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from windlass.core.event import Event
from windlass.store import Store
from windlass.stores.wakeup import JobWakeups

PAGE = 100  # events per read
POLL = 1.0  # seconds between reads when no wakeup arrives


async def tail(
    store: Store, wakeups: JobWakeups, job_id: UUID, after: int, poll: float = POLL
) -> AsyncIterator[Event]:
    """Yield the events above `after`. Ends after the final event, or when the job is not found."""
    with wakeups.subscribe(job_id) as wakeup:
        while True:
            seen = wakeup.count
            page = await store.events(job_id, after, PAGE)
            if page is None:
                return
            for event in page.events:
                after = event.seq
                yield event
            if page.ended:
                return
            if len(page.events) < PAGE:  # the last page; later events raise the wakeup count
                await wakeup.wait(seen, poll)
