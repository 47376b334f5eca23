"""A side whose library lives on an event loop: uvloop's, where that is installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import Place
from windlass.bench.side import Side

T = TypeVar("T")


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
            "uvloop"
        ).new_event_loop
        return made
    return None


class AsyncSide(Side):
    def __init__(self, place: Place) -> None:
        self._runner = asyncio.Runner(loop_factory=fast_loop())
        self.run(self.open(place))

    def run(self, wanted: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(wanted)

    @abstractmethod
    async def open(self, place: Place) -> None: ...

    @abstractmethod
    async def aput(self, payload: str) -> None: ...

    async def aput_many(self, payloads: Sequence[str]) -> None:
        raise NotImplementedError

    @abstractmethod
    async def aclose(self) -> None: ...

    @abstractmethod
    async def serve(self, ledger: Ledger) -> None: ...

    @abstractmethod
    async def left(self) -> int: ...

    def put(self, payload: str) -> None:
        self.run(self.aput(payload))

    def put_each(self, payloads: Sequence[str]) -> None:
        async def each() -> None:
            for payload in payloads:
                await self.aput(payload)

        self.run(each())

    def put_together(self, payloads: Sequence[str]) -> None:
        async def together() -> None:
            await asyncio.gather(*map(self.aput, payloads))

        self.run(together())

    def put_many(self, payloads: Sequence[str]) -> None:
        self.run(self.aput_many(payloads))

    def rest(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self.run(self.aclose())
        self._runner.close()

    def work(self, ledger: Ledger) -> None:
        self.run(self.serve(ledger))

    def unfinished(self) -> int:
        return self.run(self.left())
