"""Reads many streams and reports when each event arrived. No Windlass code.

    python -m benchmarks.server.stream_readers URL KEY

Reads one line `{"jobs": […], "each": …, "stalled": bool}`, opens `each` streams of every job, and
responds when all are open. After a second line it responds with the arrival times of each event, by
number. Stalled readers never read from their sockets; for these it responds with the times at which
the server closed them.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.event_loop import loop_factory
from benchmarks.server.http_connection import SSE, HttpConnection, address, request

MAX_CONNECTING = 100
SMALL = 4096  # bytes that the socket of a stalled reader holds
CHECK_INTERVAL = 0.1
ESTABLISHED = 1  # TCP state of an open connection
_NUMBER = re.compile(rb'"message":"#(\d+)#')


class StreamReader(HttpConnection):
    def __init__(self, arrived: dict[int, list[float]]) -> None:
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals = arrived
        self._rest = b""

    def head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        if status == 200:
            self.open.set_result(None)
        else:
            self.open.set_exception(RuntimeError(f"the server answered {status}"))

    def piece(self, data: bytes) -> None:
        now = time.time()
        whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        for number in _NUMBER.findall(whole):
            self._arrivals.setdefault(int(number), []).append(now)


async def open_streams(url: str, key: str, jobs: list[str], each: int) -> dict[int, list[float]]:
    loop = asyncio.get_running_loop()
    host, port = address(url)
    arrived: dict[int, list[float]] = {}
    gate = asyncio.Semaphore(MAX_CONNECTING)

    async def open_one(job: str) -> None:
        async with gate:
            _, made = await loop.create_connection(lambda: StreamReader(arrived), host, port)
            made.transport.write(_request_bytes(key, job))
            await made.open

    await asyncio.gather(*(open_one(job) for job in jobs for _ in range(each)))
    return arrived


def _request_bytes(key: str, job: str) -> bytes:
    return request("GET", f"/api/jobs/{job}/events", SSE | {"Authorization": f"Bearer {key}"})


def stall(url: str, key: str, jobs: list[str], each: int) -> list[socket.socket]:
    made = []
    for job in jobs:
        for _ in range(each):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            connection.connect(address(url))
            connection.sendall(_request_bytes(key, job))
            made.append(connection)
    return made


async def closing_times(sockets: list[socket.socket]) -> list[float]:
    """Return the times at which the server closed each socket, without reading from them."""
    found: list[float] = []
    left = list(sockets)
    while left:
        await asyncio.sleep(CHECK_INTERVAL)
        open_ = [connection for connection in left if _established(connection)]
        found += [time.time()] * (len(left) - len(open_))
        left = open_
    return found


def _established(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED


async def run(url: str, key: str) -> None:
    requested: dict[str, Any] = json.loads(await asyncio.to_thread(sys.stdin.readline))
    stalled = requested.pop("stalled")
    if stalled:
        sockets = stall(url, key, **requested)
        print("null", flush=True)
        closed_at = await closing_times(sockets)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(closed_at), flush=True)
        return
    arrived = await open_streams(url, key, **requested)
    print("null", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(arrived), flush=True)


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()
