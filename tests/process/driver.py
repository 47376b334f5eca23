"""A worker's stand-in, run as a script: starts a child, says who is there, and waits to be killed.

Its arguments are what the child does meanwhile, and a file for it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.process.process_table import wait_for

from windlass.process import Pool


async def main(what: str, mark: str) -> None:
    pool = Pool("tests.process.child_commands", limit=1)
    async with pool.take() as process:
        process.channel.send({"do": "start"})
        grandchild = (await process.channel.receive())["said"]
        process.channel.send({"do": what, "with": mark})
        if what == "hold":
            await asyncio.to_thread(wait_for, Path(mark))
        else:
            await process.channel.receive()
        print(json.dumps([process.pid, grandchild, pool.groups.warden]), flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
