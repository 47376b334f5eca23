"""Progress of queues that are being drained, polled until they are empty."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import State
from windlass.core.query.drain_progress import DRAIN_STATES, DrainProgress, drain_eta
from windlass.core.size_limits import check_text
from windlass.store import QueueStats, Store

FIRST_POLL, MAX_POLL = 0.05, 1.0  # seconds between two polls
ETA_SAMPLES = 30  # polls that the estimate uses


async def watch_drain(store: Store, names: Sequence[str]) -> AsyncIterator[DrainProgress]:
    """Poll these queues until they are empty; the last progress has `left == 0`.

    Only waits for the workers, and changes nothing. Includes jobs that are enqueued meanwhile.
    Held and scheduled jobs are not in their queue yet, and are not waited for.
    """
    for name in names:
        check_text("a queue name", name)
    if not names:
        raise InvalidArgumentError("name at least one queue to drain")
    clock = asyncio.get_running_loop().time
    start, pause, peak = clock(), FIRST_POLL, 0
    samples: deque[tuple[float, int]] = deque(maxlen=ETA_SAMPLES)
    while True:
        progress = _progress(await store.insights.stats(), names)
        peak = max(peak, progress.left)
        samples.append((clock() - start, progress.left))
        eta = None if progress.capped else drain_eta(samples)
        yield replace(progress, peak=peak, seconds=clock() - start, eta=eta)
        if not progress.left:
            return
        await asyncio.sleep(pause)
        pause = min(MAX_POLL, 2 * pause)


def _progress(stats: Mapping[str, QueueStats], names: Sequence[str]) -> DrainProgress:
    found = [stats[name] for name in names if name in stats]
    left = sum(queue.counts.get(state, 0) for queue in found for state in DRAIN_STATES)
    return DrainProgress(
        left=left,
        peak=left,
        running=sum(queue.counts.get(State.RUNNING, 0) for queue in found),
        created=sum(queue.counts.get(State.CREATED, 0) for queue in found),
        capped=any(queue.capped & DRAIN_STATES for queue in found),
        paused=tuple(name for name in names if name in stats and stats[name].paused),
    )
