"""A database in which commits take their time and some fail, and followers of what is written."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from tests.stores.postgres.server import execute

from windlass.core.event import Event
from windlass.stores.postgres import PostgresStore

# Whatever writes to a job or its log waits before its commit, and one in ten is rolled back there:
# what it wrote had its numbers, and others were waiting behind it. Half of those rolled back are
# tried again by the store itself, the others by its caller.
#
# `arrival` is what a log must not be read by: a sequence, given before the commit.
RESTLESS = """
CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE lot float8 := random();
BEGIN
    PERFORM pg_sleep(0.02 * random() * random());
    IF current_setting('application_name') = 'windlass' AND lot < 0.1 THEN
        RAISE EXCEPTION 'not this time'
            USING ERRCODE = CASE WHEN lot < 0.05 THEN '40001' ELSE '57014' END;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON windlass_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger();
CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON windlass_job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger();
ALTER TABLE windlass_log ADD COLUMN arrival bigserial;
"""


async def make_restless(url: str) -> None:
    await execute(url, RESTLESS)


def encode_event(event: Event) -> str:
    """Return an event as one line of text."""
    return f"{event.job_id} {event!r}"


async def follow(url: str, jobs: list[UUID]) -> None:
    """Print every event of these jobs, until all have ended."""

    async def one(store: PostgresStore, job: UUID) -> None:
        async for event in store.tail(job):
            print(encode_event(event), flush=True)  # noqa: T201 - it is the transcript

    async with PostgresStore(url) as store:
        await asyncio.gather(*(one(store, job) for job in jobs))


@asynccontextmanager
async def following(url: str, jobs: list[UUID]) -> AsyncIterator[asyncio.Task[bytes]]:
    """A process of its own that does so; the task has its transcript when all jobs have ended."""
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, url, *map(str, jobs),
        cwd=root, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    transcript = asyncio.create_task(process.stdout.read())
    try:
        yield transcript
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1], [UUID(job) for job in sys.argv[2:]]))
