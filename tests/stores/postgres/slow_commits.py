"""A database with slow and failing commits, and a process that tails events of jobs."""

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

# Each write to a job or its log sleeps before its commit, and one in ten is rolled back there. Its
# rows already have numbers then, and other transactions wait for its locks. The store retries half
# of the rolled back calls (40001); the caller retries the others (57014).
#
# `arrival` is assigned from a sequence before the commit. A reader must not use it as a cursor.
SLOW_COMMITS = """
CREATE FUNCTION sleep_or_fail() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE chance float8 := random();
BEGIN
    PERFORM pg_sleep(0.02 * random() * random());
    IF current_setting('application_name') = 'windlass' AND chance < 0.1 THEN
        RAISE EXCEPTION 'not this time'
            USING ERRCODE = CASE WHEN chance < 0.05 THEN '40001' ELSE '57014' END;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER sleep_or_fail AFTER INSERT ON windlass_log
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleep_or_fail();
CREATE CONSTRAINT TRIGGER sleep_or_fail AFTER UPDATE ON windlass_job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleep_or_fail();
ALTER TABLE windlass_log ADD COLUMN arrival bigserial;
"""


async def slow_down_commits(url: str) -> None:
    await execute(url, SLOW_COMMITS)


def event_line(event: Event) -> str:
    """Return an event as one line of text."""
    return f"{event.job_id} {event!r}"


async def print_events(url: str, jobs: list[UUID]) -> None:
    """Print every event of these jobs, until all have ended."""

    async def follow_job(store: PostgresStore, job: UUID) -> None:
        async for event in store.tail(job):
            print(event_line(event), flush=True)  # noqa: T201 - the output of this program

    async with PostgresStore(url) as store:
        await asyncio.gather(*(follow_job(store, job) for job in jobs))


@asynccontextmanager
async def event_printer(url: str, jobs: list[UUID]) -> AsyncIterator[asyncio.Task[bytes]]:
    """Run `print_events` in another process; the task returns its output at the end."""
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, url, *map(str, jobs),
        cwd=root, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    output = asyncio.create_task(process.stdout.read())
    try:
        yield output
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(print_events(sys.argv[1], [UUID(job) for job in sys.argv[2:]]))
