"""Write calls: queued for the writer thread, merged, and delivered to their callers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby, islice
from typing import Any, Generic, TypeVar

from windlass.stores.sqlite.writes.write_transaction import WriteTransaction

T = TypeVar("T")


class WriteCall(Generic[T]):
    """One call for the writer thread, and the future of its caller.

    With `items`, consecutive calls of the same function `run` are merged into one. `size` is the
    maximum number of jobs that the call affects.
    """

    __slots__ = ("alone", "error", "future", "items", "loop", "result", "run", "size")

    def __init__(
        self,
        run: Callable[..., Any],
        *,
        items: Sequence[Any] | None = None,
        size: int = 1,
        alone: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.run = run
        self.items = items
        self.size = size
        self.alone = alone
        self.loop = loop
        self.future: asyncio.Future[T] | Future[T] = loop.create_future() if loop else Future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def deliver(self) -> None:
        future = self.future
        if future.done():
            return  # the caller stopped waiting; the write remains
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.result)  # type: ignore[arg-type]


def run_group(group: Sequence[WriteCall[Any]], tx: WriteTransaction) -> None:
    """Run the calls in order; merge consecutive calls of the same function."""
    if len(group) == 1:
        [call] = group
        call.result = call.run(tx) if call.items is None else call.run(tx, call.items)
        return
    for run, consecutive in groupby(group, key=lambda call: call.run):
        calls = list(consecutive)
        if calls[0].items is None:
            for call in calls:
                call.result = run(tx)
        elif len(calls) == 1:
            calls[0].result = run(tx, calls[0].items)
        else:
            results = iter(run(tx, [item for call in calls for item in call.items or ()]))
            for call in calls:
                call.result = list(islice(results, len(call.items or ())))


def deliver(group: Sequence[WriteCall[Any]]) -> None:
    """Deliver the results; wake each event loop once."""
    if len(group) == 1 and group[0].loop is not None:
        with contextlib.suppress(RuntimeError):
            group[0].loop.call_soon_threadsafe(group[0].deliver)
        return
    loops: dict[asyncio.AbstractEventLoop, list[WriteCall[Any]]] = {}
    for call in group:
        if call.loop is None:
            call.deliver()
        else:
            loops.setdefault(call.loop, []).append(call)
    for loop, calls in loops.items():
        with contextlib.suppress(RuntimeError):  # a closed loop has no waiters left
            loop.call_soon_threadsafe(_deliver_all, calls)


def _deliver_all(calls: Sequence[WriteCall[Any]]) -> None:
    for call in calls:
        call.deliver()
