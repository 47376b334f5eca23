"""Base of adapters for async libraries; uses uvloop if it is installed."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from benchmarks.event_loop import loop_factory
from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import QueueAdapter
from benchmarks.peers.round_config import RoundConfig

T = TypeVar("T")


class AsyncQueueAdapter(QueueAdapter):
    def __init__(self, config: RoundConfig) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory())
        self.run(self.open(config))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    @abstractmethod
    async def open(self, config: RoundConfig) -> None: ...

    @abstractmethod
    async def aenqueue(self, payload: str) -> None: ...

    async def aenqueue_bulk(self, payloads: Sequence[str]) -> None:
        raise NotImplementedError

    @abstractmethod
    async def aclose(self) -> None: ...

    @abstractmethod
    async def awork(self, ledger: JobLedger) -> None: ...

    @abstractmethod
    async def aunfinished(self) -> int: ...

    def enqueue(self, payload: str) -> None:
        self.run(self.aenqueue(payload))

    def enqueue_each(self, payloads: Sequence[str]) -> None:
        async def enqueue_all() -> None:
            for payload in payloads:
                await self.aenqueue(payload)

        self.run(enqueue_all())

    def enqueue_concurrently(self, payloads: Sequence[str]) -> None:
        async def enqueue_all() -> None:
            await asyncio.gather(*map(self.aenqueue, payloads))

        self.run(enqueue_all())

    def enqueue_bulk(self, payloads: Sequence[str]) -> None:
        self.run(self.aenqueue_bulk(payloads))

    def pause(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self.run(self.aclose())
        self._runner.close()

    def work(self, ledger: JobLedger) -> None:
        self.run(self.awork(ledger))

    def unfinished(self) -> int:
        return self.run(self.aunfinished())
