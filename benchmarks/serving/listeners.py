"""Listens to many streams, and says when each event arrived. No Windlass code.

    python -m benchmarks.serving.listeners URL KEY

Reads one line `{"jobs": […], "each": …, "stalled": bool}` and opens so many streams of each job; it
answers when all are open. A second line ends it: it answers with the times at which each event
came, by its number. Stalled ones take nothing from their sockets, ever; it then answers with the
time at which each was closed by the server.
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

from benchmarks.serving.sockets import SSE, Answers, address, request
from benchmarks.store_postgres import loop_factory

AT_ONCE = 100
SMALL = 4096  # bytes that the socket of a stalled reader holds
LOOK = 0.1
ESTABLISHED = 1  # TCP's state of a connection that nobody has ended
_NUMBER = re.compile(rb'"message":"#(\d+)#')


class Listener(Answers):
    def __init__(self, came: dict[int, list[float]]) -> None:
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came = came
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
            self._came.setdefault(int(number), []).append(now)


async def listen(url: str, key: str, jobs: list[str], each: int) -> dict[int, list[float]]:
    loop = asyncio.get_running_loop()
    host, port = address(url)
    came: dict[int, list[float]] = {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one(job: str) -> None:
        async with gate:
            _, made = await loop.create_connection(lambda: Listener(came), host, port)
            made.transport.write(_asked(key, job))
            await made.open

    await asyncio.gather(*(open_one(job) for job in jobs for _ in range(each)))
    return came


def _asked(key: str, job: str) -> bytes:
    return request("GET", f"/api/jobs/{job}/events", SSE | {"Authorization": f"Bearer {key}"})


def stall(url: str, key: str, jobs: list[str], each: int) -> list[socket.socket]:
    made = []
    for job in jobs:
        for _ in range(each):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            one.connect(address(url))
            one.sendall(_asked(key, job))
            made.append(one)
    return made


async def closed(sockets: list[socket.socket]) -> list[float]:
    """Times at which the server cut each off: an error shows, though nothing is read."""
    found: list[float] = []
    left = list(sockets)
    while left:
        await asyncio.sleep(LOOK)
        still = [one for one in left if _established(one)]
        found += [time.time()] * (len(left) - len(still))
        left = still
    return found


def _established(one: socket.socket) -> bool:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED


async def run(url: str, key: str) -> None:
    asked: dict[str, Any] = json.loads(await asyncio.to_thread(sys.stdin.readline))
    stalled = asked.pop("stalled")
    if stalled:
        sockets = stall(url, key, **asked)
        print("null", flush=True)
        ends = await closed(sockets)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(ends), flush=True)
        return
    came = await listen(url, key, **asked)
    print("null", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(came), flush=True)


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()
