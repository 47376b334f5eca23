"""Base of sides with an async library; uses uvloop if it is installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import RoundConfig
from windlass.bench.side import Side

T = TypeVar("T")


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(
            "uvloop"
        ).new_event_loop
        return factory
    return None


class AsyncSide(Side):
    def __init__(self, config: RoundConfig) -> None:
        self._runner = asyncio.Runner(loop_factory=fast_loop())
        self.run(self.open(config))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    @abstractmethod
    async def open(self, config: RoundConfig) -> None: ...

    @abstractmethod
    async def aput(self, payload: str) -> None: ...

    async def aput_many(self, payloads: Sequence[str]) -> None:
        raise NotImplementedError

    @abstractmethod
    async def aclose(self) -> None: ...

    @abstractmethod
    async def awork(self, ledger: Ledger) -> None: ...

    @abstractmethod
    async def aunfinished(self) -> int: ...

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

    def pause(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self.run(self.aclose())
        self._runner.close()

    def work(self, ledger: Ledger) -> None:
        self.run(self.awork(ledger))

    def unfinished(self) -> int:
        return self.run(self.aunfinished())
