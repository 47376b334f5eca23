"""Thousands of readers of event streams, who write down what they are told. No Windlass code.

    python -m benchmarks.chaos.streams.readers PLACE SERVER SERVER

Reader n follows the n-th job (there may be many readers of one), as a browser would: when its
connection ends before the job does, it comes back, to any server, with the last id that it has;
when it has the last event, it asks once more, and must be told that there is nothing. A line per
connection goes to `PLACE/streams/transcript.jsonl`: what was asked, the status, the body as it
came, and whether it came to its end. Who finds a door closed goes to the next: thousands who knock
there again and again would take the time in which the server behind it is to begin.
`PLACE/streams/open` says how many streams are open now, how many there were at most, and how many
readers have seen their job's end. SIGUSR1 makes a fifth of the readers hang up, whatever they are
doing. It ends when all have seen that.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TextIO

import uvloop

from benchmarks.chaos.ledger import read
from benchmarks.serving.sockets import SSE, Answers, address, request

LOOK = 0.2  # seconds between two looks for jobs that were acknowledged
AT_ONCE = 100  # connections that are being made
HANG_UP = 0.2
BACK = (0.05, 0.5)  # seconds until a reader comes back
COUNT = 0.1  # seconds between two counts of the open streams
STREAM, NOTHING_MORE = 200, 204
_ENDS = ("job-completed", "job-failed", "job-cancelled")


class Connection(Answers):
    """One request for a stream, and all that it is answered. It is in `streams` while it is one."""

    def __init__(self, streams: set[Connection]) -> None:
        self._streams = streams
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: int | None = None
        self.body = bytearray()
        self.whole = False

    def head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self.status = status
        if status == STREAM:
            self._streams.add(self)

    def piece(self, data: bytes) -> None:
        self.body += data

    def end(self) -> None:
        self.whole = True
        self.transport.close()

    def lost(self) -> None:
        self._streams.discard(self)
        if not self.over.done():
            self.over.set_result(None)


class Readers:
    def __init__(self, place: Path, servers: list[str]) -> None:
        plan = json.loads((place / "plan.json").read_text())
        self._place = place
        self._servers = [address(url) for url in servers]
        self._random = Random(plan["seed"])
        self._jobs: list[str] = []
        self._wanted: int = plan["jobs"]
        self._count: int = plan["connections"]
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._made: set[Connection] = set()
        self._streams: set[Connection] = set()
        self._most = 0  # streams that were open at once
        self._done = 0  # readers who have seen their job's end

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._hang_up)
        counting = loop.create_task(self._count_open())
        with (self._place / "streams" / "transcript.jsonl").open("w") as file:
            readers: list[asyncio.Task[None]] = []
            while len(readers) < self._count:
                self._look()
                while len(readers) < min(self._count, self._share()):
                    readers.append(loop.create_task(self._follow(len(readers), file)))
                await asyncio.sleep(LOOK)
            await asyncio.gather(*readers)
        counting.cancel()

    async def _count_open(self) -> None:
        draft = self._place / "streams" / "open.new"
        told: dict[str, int] = {}
        while True:
            count = len(self._streams)
            self._most = max(self._most, count)
            facts = {"now": count, "most": self._most, "done": self._done}
            if facts != told:
                draft.write_text(json.dumps(facts))
                draft.replace(self._place / "streams" / "open")
                told = facts
            await asyncio.sleep(COUNT)

    def _look(self) -> None:
        answered = [
            line["answered"] for line in read(self._place, "producer") if "answered" in line
        ]
        self._jobs += dict.fromkeys(job for ids in answered for job in ids if job not in self._jobs)

    def _share(self) -> int:
        """Readers whose job is there: the others wait until theirs is."""
        return self._count if len(self._jobs) >= self._wanted else len(self._jobs)

    def _hang_up(self) -> None:
        for connection in list(self._made):
            if self._random.random() < HANG_UP:
                connection.transport.abort()

    async def _follow(self, number: int, file: TextIO) -> None:
        job, after, ended = self._jobs[number % self._wanted], None, False
        server = self._any_server()
        while True:
            made = await self._ask(server, job, after)
            if made is None:
                server = (server + 1) % len(self._servers)
            else:
                told = messages(bytes(made.body))
                facts = {"reader": number, "job": job, "server": server, "after": after}
                body = made.body.decode("utf-8", "surrogateescape")
                facts |= {"status": made.status, "whole": made.whole, "body": body}
                file.write(json.dumps(facts | {"at": time.time_ns() // 1000}) + "\n")
                if made.status == NOTHING_MORE and ended:
                    self._done += 1
                    return
                for event_id, kind, _ in told:
                    after, ended = event_id, kind in _ENDS
                server = self._any_server()
            if not ended:
                await asyncio.sleep(self._random.uniform(*BACK))

    def _any_server(self) -> int:
        return self._random.randrange(len(self._servers))

    async def _ask(self, server: int, job: str, after: str | None) -> Connection | None:
        """What came of it; None if there is no server now."""
        headers = SSE | ({} if after is None else {"Last-Event-ID": after})
        made = Connection(self._streams)
        with suppress(OSError):
            async with self._gate:
                host, port = self._servers[server]
                await asyncio.get_running_loop().create_connection(lambda: made, host, port)
            made.transport.write(request("GET", f"/api/jobs/{job}/events", headers))
            self._made.add(made)
            await made.over
            self._made.discard(made)
            return made
        return None


def messages(body: bytes) -> list[tuple[str, str, str]]:
    """Id, type and data of each message that came whole and has an id; as a browser would."""
    found = []
    for block in body.split(b"\n\n")[:-1]:
        fields = dict(line.partition(b": ")[::2] for line in block.split(b"\n"))
        if b"id" in fields:
            parts = (fields[b"id"], fields.get(b"event", b""), fields.get(b"data", b""))
            event_id, kind, data = (part.decode("utf-8", "surrogateescape") for part in parts)
            found.append((event_id, kind, data))
    return found


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Readers(Path(sys.argv[1]), sys.argv[2:]).run())


if __name__ == "__main__":
    main()
