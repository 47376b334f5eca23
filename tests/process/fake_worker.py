"""A fake worker, run as a script: starts a child, prints pids, waits to be killed.

Arguments: the command that the child runs meanwhile, and a file for it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.process.process_table import wait_for_file

from windlass.process import ChildPool


async def main(command: str, mark: str) -> None:
    pool = ChildPool("tests.process.child_commands", limit=1)
    async with pool.take() as process:
        process.channel.send({"do": "start"})
        grandchild = (await process.channel.receive())["result"]
        process.channel.send({"do": command, "with": mark})
        if command == "hold":
            await asyncio.to_thread(wait_for_file, Path(mark))
        else:
            await process.channel.receive()
        print(json.dumps([process.pid, grandchild, pool.groups.warden]), flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
