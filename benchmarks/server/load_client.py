"""Sends requests on persistent connections and reports the latencies.

    python -m benchmarks.server.load_client URL KEY

Reads lines `{"path": …, "clients": …, "seconds": …}`; responds to each with rate and latencies.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping

from benchmarks.event_loop import loop_factory
from benchmarks.server.http_connection import HttpConnection, address, request

BODY = json.dumps({"task": "greet", "arguments": {"name": "x" * 80, "times": 1}}).encode()
ACCEPTED = {200, 201}


class LoadConnection(HttpConnection):
    """Sends one request after another until `end`."""

    def __init__(self, requested: bytes, end: float, took: list[float]) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._request_bytes = requested
        self._end = end
        self._took = took
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._send_request()

    def _send_request(self) -> None:
        self._began = time.perf_counter()
        self.transport.write(self._request_bytes)

    def head(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        if status not in ACCEPTED:
            self.done.set_exception(RuntimeError(f"the server answered {status}"))
            self.transport.abort()

    def end(self) -> None:
        now = time.perf_counter()
        self._took.append(now - self._began)
        if now < self._end:
            self._send_request()
        else:
            self.transport.close()

    def lost(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def call(url: str, key: str, path: str, clients: int, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    host, port = address(url)
    requested = request("POST", path, {"Authorization": f"Bearer {key}"}, BODY)
    took: list[float] = []
    began = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: LoadConnection(requested, began + seconds, took), host, port
        )
        for _ in range(clients)
    ]
    await asyncio.gather(*(asker.done for _, asker in made))
    whole = time.perf_counter() - began
    took.sort()
    return {
        "answers": len(took),
        "rate": len(took) / whole,
        "p50": took[len(took) // 2],
        "p99": took[len(took) * 99 // 100],
    }


def main() -> None:
    url, key = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(call(url, key, **json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
