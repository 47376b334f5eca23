"""Thousands of readers of event streams that record what they receive. No Windlass code.

    python -m benchmarks.chaos.streams.readers DIRECTORY SERVER SERVER

Reader n follows the n-th job as a browser would; a job may have many readers. After a lost
connection it reconnects to any server with its last event id. After the last event it requests the
stream once more and must get an empty response. A refused reader tries the next server, because
thousands of repeated attempts would take the time that a restarting server needs. Each connection
adds a line to `DIRECTORY/streams/transcript.jsonl`: the request, the status, the received body, and
whether it was complete. `DIRECTORY/streams/open` has the number of open streams, their maximum, and
the number of readers whose job has ended. SIGUSR1 disconnects a fifth of the readers. The program
ends when all readers are done.
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
from benchmarks.server.http_connection import SSE, HttpConnection, address, request

CHECK_INTERVAL = 0.2  # seconds between two reads of acknowledged jobs
MAX_CONNECTING = 100  # connections being opened
DISCONNECT_SHARE = 0.2
RECONNECT_DELAY = (0.05, 0.5)  # seconds until a reader reconnects
COUNT_INTERVAL = 0.1  # seconds between two counts of the open streams
STREAM, NO_CONTENT = 200, 204
_ENDS = ("job-completed", "job-failed", "job-cancelled")


class Connection(HttpConnection):
    """One request for a stream, with its response. In `streams` while the stream is open."""

    def __init__(self, streams: set[Connection]) -> None:
        self._streams = streams
        self.wait_until_closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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
        if not self.wait_until_closed.done():
            self.wait_until_closed.set_result(None)


class Readers:
    def __init__(self, directory: Path, servers: list[str]) -> None:
        plan = json.loads((directory / "plan.json").read_text())
        self._directory = directory
        self._servers = [address(url) for url in servers]
        self._random = Random(plan["seed"])
        self._jobs: list[str] = []
        self._wanted: int = plan["jobs"]
        self._count: int = plan["connections"]
        self._gate = asyncio.Semaphore(MAX_CONNECTING)
        self._connections: set[Connection] = set()
        self._streams: set[Connection] = set()
        self._most = 0  # streams that were open at once
        self._done = 0  # readers whose job has ended

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._disconnect_some)
        counting = loop.create_task(self._count_open())
        with (self._directory / "streams" / "transcript.jsonl").open("w") as file:
            readers: list[asyncio.Task[None]] = []
            while len(readers) < self._count:
                self._read_jobs()
                while len(readers) < min(self._count, self._share()):
                    readers.append(loop.create_task(self._follow(len(readers), file)))
                await asyncio.sleep(CHECK_INTERVAL)
            await asyncio.gather(*readers)
        counting.cancel()

    async def _count_open(self) -> None:
        draft = self._directory / "streams" / "open.new"
        reported: dict[str, int] = {}
        while True:
            count = len(self._streams)
            self._most = max(self._most, count)
            facts = {"now": count, "most": self._most, "done": self._done}
            if facts != reported:
                draft.write_text(json.dumps(facts))
                draft.replace(self._directory / "streams" / "open")
                reported = facts
            await asyncio.sleep(COUNT_INTERVAL)

    def _read_jobs(self) -> None:
        answered = [
            line["acknowledged"]
            for line in read(self._directory, "producer")
            if "acknowledged" in line
        ]
        self._jobs += dict.fromkeys(job for ids in answered for job in ids if job not in self._jobs)

    def _share(self) -> int:
        """Return the number of readers with an enqueued job; the others wait."""
        return self._count if len(self._jobs) >= self._wanted else len(self._jobs)

    def _disconnect_some(self) -> None:
        for connection in list(self._connections):
            if self._random.random() < DISCONNECT_SHARE:
                connection.transport.abort()

    async def _follow(self, number: int, file: TextIO) -> None:
        job, after, ended = self._jobs[number % self._wanted], None, False
        server = self._any_server()
        while True:
            connection = await self._request_stream(server, job, after)
            if connection is None:
                server = (server + 1) % len(self._servers)
            else:
                reported = messages(bytes(connection.body))
                facts = {"reader": number, "job": job, "server": server, "after": after}
                body = connection.body.decode("utf-8", "surrogateescape")
                facts |= {"status": connection.status, "whole": connection.whole, "body": body}
                file.write(json.dumps(facts | {"at": time.time_ns() // 1000}) + "\n")
                if connection.status == NO_CONTENT and ended:
                    self._done += 1
                    return
                for event_id, kind, _ in reported:
                    after, ended = event_id, kind in _ENDS
                server = self._any_server()
            if not ended:
                await asyncio.sleep(self._random.uniform(*RECONNECT_DELAY))

    def _any_server(self) -> int:
        return self._random.randrange(len(self._servers))

    async def _request_stream(self, server: int, job: str, after: str | None) -> Connection | None:
        """Return the response, or None without a server."""
        headers = SSE | ({} if after is None else {"Last-Event-ID": after})
        connection = Connection(self._streams)
        with suppress(OSError):
            async with self._gate:
                host, port = self._servers[server]
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
            connection.transport.write(request("GET", f"/api/jobs/{job}/events", headers))
            self._connections.add(connection)
            await connection.wait_until_closed
            self._connections.discard(connection)
            return connection
        return None


def messages(body: bytes) -> list[tuple[str, str, str]]:
    """Return id, type and data of each complete message with an id, as a browser does."""
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
