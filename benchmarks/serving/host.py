"""The server that is measured: one process, with one more route, which answers nothing at all.

    python -m benchmarks.serving.host URL [--stall SECONDS]

It prints where it is and a key. `POST /empty` is a plain route of the same application: what HTTP
costs here by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from fastapi import Response

from benchmarks.store_postgres import loop_factory
from windlass import Windlass
from windlass.server.auth.api_keys import Keys, Role
from windlass.server.config import Door, ServerConfig
from windlass.server.uvicorn_server import Server, settle_in

ENOUGH = 10**9  # a pace is kept, and streams are counted; nobody reaches it


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
        door=Door.KEYS,
        rate=ENOUGH,
        burst=ENOUGH,
        max_streams=ENOUGH,
        max_streams_per_key=ENOUGH,
        stall=stall,
    )
    api = app.asgi(config)
    api.add_api_route("/empty", empty, methods=["POST"])
    _, key = await Keys(app.client().store).create("bench", [Role.ADMIN])

    def started(where: str) -> None:
        settle_in()
        print(json.dumps({"url": where, "key": key}), flush=True)

    try:
        await Server(api, "127.0.0.1", 0, grace=2, started=started).serve()
    finally:
        await app.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--stall", type=float, default=ServerConfig().stall)
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(host(given.url, given.stall))


if __name__ == "__main__":
    main()
