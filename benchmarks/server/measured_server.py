"""The measured server: one process, with an additional empty route.

    python -m benchmarks.server.measured_server URL [--stall SECONDS]

It prints its URL and a key. `POST /empty` is a plain route of the same application and measures the
cost of HTTP alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from fastapi import Response

from benchmarks.event_loop import loop_factory
from windlass import Windlass
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.uvicorn_server import UvicornServer, freeze_gc

UNREACHED = 10**9  # rate and stream limits are active but never reached


def application(url: str) -> Windlass:
    app = Windlass(url)

    @app.task(name="greet")
    async def greet(name: str, times: int = 1) -> str:
        return name * times

    return app


async def empty() -> Response:
    return Response()


async def host(url: str, stall: float) -> None:
    app = application(url)
    config = ServerConfig(
        auth=AuthMode.KEYS,
        rate=UNREACHED,
        burst=UNREACHED,
        max_streams=UNREACHED,
        max_streams_per_key=UNREACHED,
        write_timeout=stall,
    )
    api = app.asgi(config)
    api.add_api_route("/empty", empty, methods=["POST"])
    _, key = await ApiKeys(app.client().store).create("bench", [Role.ADMIN])

    def started(where: str) -> None:
        freeze_gc()
        print(json.dumps({"url": where, "key": key}), flush=True)

    try:
        await UvicornServer(api, "127.0.0.1", 0, grace=2, on_started=started).serve()
    finally:
        await app.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--stall", type=float, default=ServerConfig().write_timeout)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(host(given.url, given.stall))


if __name__ == "__main__":
    main()
