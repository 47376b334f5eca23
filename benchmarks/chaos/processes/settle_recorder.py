"""Store wrapper in a worker: records the result of each settle, and can freeze before one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.chaos.ledger import note, storm_directory
from windlass.core.decisions.transition import ApplyResult, Transition
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class SettleRecorder(WrappedStore):
    """Records the result of each settle; freezes before one if it is ordered to.

    It freezes when no other call of this process is in progress, so it holds no lock.
    """

    def __init__(self, store: Store, under_way: set[object] | None = None) -> None:
        super().__init__(store)
        self._under_way: set[object] = set() if under_way is None else under_way

    def wrap(self, store: Store) -> SettleRecorder:
        return SettleRecorder(store, self._under_way)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if verb == "wait":
            return await call()
        this = object()
        self._under_way.add(this)
        try:
            return await call()
        finally:
            self._under_way.discard(this)

    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        settles = any(transition.trigger.settles for transition in transitions)
        if settles and not self._under_way:
            _sleep_if_told()
        answers = await super().apply(transitions)
        if settles:
            facts = [
                (
                    str(transition.job_id),
                    transition.fence,
                    transition.trigger,
                    answer.status,
                    answer.state,
                )
                for transition, answer in zip(transitions, answers, strict=True)
                if transition.trigger.settles
            ]
            note("settle", answers=facts, pid=os.getpid())
        return answers


def freeze_at_settle(directory: Path, pid: int) -> Path:
    """Have this process stop itself when it is next about to settle something.

    The order is a file, which it removes first.
    """
    order = _order(directory, pid)
    order.touch()
    return order


def _sleep_if_told() -> None:
    with contextlib.suppress(FileNotFoundError):
        _order(storm_directory(), os.getpid()).unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


def _order(directory: Path, pid: int) -> Path:
    return directory / "freeze" / str(pid)
