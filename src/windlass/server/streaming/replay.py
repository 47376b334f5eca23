"""What the store has of a log, read for all who come.

Many may come at once, and those who listen to other jobs must not notice.
Who asks for the same piece of a log while it is being read gets it from the same read, encoded
once. Only a few pieces are read at a time, in the order in which they were asked for: whatever else
the process does has its turn between two of them, and finds a connection to the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from windlass.client import Client
from windlass.core.codec import Codec
from windlass.core.errors import NotFoundError
from windlass.core.event import Event
from windlass.server.streaming.event_format import Line, Teller, line_of

# What is read from the store at a time: a reader who stalls holds it. So few events at first, then
# as many as such events fill this, and no more than that is kept.
FIRST, MOST = 8, 256
ROOM = 64 * 1024
AT_ONCE = 4  # pieces that are read: fewer than the connections that a store opens
_Place: TypeAlias = tuple[UUID, int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """`whole` says that nothing came behind it when it was read.

    The job's last event sums up what was said before: it is for each reader's teller to tell.
    """

    lines: list[Line]
    last: Event | None
    whole: bool
    limit: int  # events like these that fill the room: for the next read


class Replay:
    def __init__(self, client: Callable[[], Client], codec: Codec) -> None:
        self._client = client
        self._codec = codec
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._under_way: dict[_Place, asyncio.Task[Piece]] = {}

    async def stored(self, job_id: UUID, seen: int) -> AsyncGenerator[list[Line], None]:
        """What the store has by now."""
        teller = Teller(self._client().store, self._codec, job_id, seen)
        limit = FIRST
        while True:
            piece = await self._piece(job_id, seen, limit)
            lines = list(piece.lines)
            for line in lines:
                teller.heard(line)
            if piece.last is not None:
                lines.append(await teller.line(piece.last))
            whole, limit = piece.whole, piece.limit
            del piece  # whoever takes nothing must not hold what they do not get
            if lines:
                seen = lines[-1].seq
                yield lines
            if whole:
                return

    async def _piece(self, job_id: UUID, seen: int, limit: int) -> Piece:
        """It may have been asked for by somebody else, a moment ago; it is read to its end."""
        place = (job_id, seen, limit)
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(self._read(*place))
            task.add_done_callback(lambda done: self._ended(place, done))
        return await asyncio.shield(task)

    def _ended(self, place: _Place, task: asyncio.Task[Piece]) -> None:
        del self._under_way[place]
        if not task.cancelled():
            task.exception()  # whoever waited may have gone; the failure is nobody's then

    async def _read(self, job_id: UUID, seen: int, limit: int) -> Piece:
        async with self._turns:
            page = await self._client().store.events(job_id, seen, limit)
            if page is None:
                raise NotFoundError(f"job {job_id} is not kept any more")
            lines: list[Line] = []
            size = 0
            for event in page.events:
                if event.final:
                    return Piece(lines, event, whole=True, limit=limit)
                lines.append(line_of(event, self._codec))
                size += len(lines[-1].single)
                if size > ROOM:
                    break
            whole = len(lines) == len(page.events) < limit
            fitting = max(1, min(MOST, ROOM * len(lines) // size)) if lines else limit
            return Piece(lines, None, whole, fitting)
