"""What goes out on a stream: the log of one job, or of many jobs together with lists.

The logs of named jobs are whole: each is followed like one job's, from a cursor that the reader
holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from uuid import UUID

from windlass.core.errors import NotFoundError
from windlass.server.problems import problem
from windlass.server.streaming.event_format import dumped, message
from windlass.server.streaming.hub import Hub, Wanted

TOGETHER = 32 * 1024  # bytes that go out at once: about what a connection holds
WAITING = 64  # lines that wait for one reader, of all jobs and lists together
Feed = AsyncGenerator[bytes, None]


async def one(hub: Hub, job_id: UUID, wanted: Wanted) -> Feed:
    """The log of one job; its lines carry cursors. Those that are there go out together."""
    async with contextlib.aclosing(hub.follow(job_id, wanted)) as found:
        async for lines in found:
            pieces = _joined([line.single for line in lines])
            lines.clear()  # who takes nothing holds no more than what is to be sent
            while pieces:
                yield pieces.popleft()


def _joined(lines: list[bytes]) -> deque[bytes]:
    """As few pieces as may be."""
    pieces: deque[bytes] = deque()
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size > TOGETHER:
            pieces.append(b"".join(piece))
            piece, size = [], 0
    if piece:
        pieces.append(b"".join(piece))
    return pieces


async def named(hub: Hub, job_id: UUID, wanted: Wanted, *, each: bool) -> Feed:
    """The log of one job among others; with `each`, also that the job is there no more."""
    final = False
    async with contextlib.aclosing(hub.follow(job_id, wanted)) as found:
        async for lines in found:
            for line in lines:
                final = line.final
                yield line.many
    if each and not final:
        yield over({"jobId": str(job_id)}, NotFoundError(f"job {job_id} is not kept any more"))


def over(whose: Mapping[str, str], error: BaseException | None = None) -> bytes:
    """Nothing more comes of this job or list: it had ended, or something is wrong with it."""
    told = None if error is None else problem(error).model_dump(exclude_none=True)
    return message("over", dumped({**whose, "problem": told}))


async def together(first: Sequence[bytes], feeds: Sequence[Feed]) -> Feed:
    """All of these, each in its order, until all have ended."""
    pieces: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(WAITING)

    async def pass_on(feed: Feed) -> None:
        try:
            async with contextlib.aclosing(feed):
                async for piece in feed:
                    await pieces.put(piece)
        except Exception as error:  # noqa: BLE001 - it ends the stream, and is told there
            await pieces.put(error)
        else:
            await pieces.put(None)

    if first:
        yield b"".join(first)
    work = [asyncio.create_task(pass_on(feed)) for feed in feeds]
    try:
        left = len(work)
        while left:
            said = await pieces.get()
            if isinstance(said, BaseException):
                raise said
            if said is None:
                left -= 1
            else:
                yield said
    finally:
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
