"""Store wrapper in a worker: records the results of settles and can drop connections."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from benchmarks.chaos.ledger import note, place
from windlass.core.decisions.transition import ApplyResult, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
LOST, UNHEARD = "request lost", "answer lost"
_SAFE = {"close", "migrate"}


class BadLine(WrappedStore):
    """Of all calls, the part `lose` raises: half of them before, half after they were executed."""

    def __init__(self, store: Store, random: Random, lose: float) -> None:
        super().__init__(store)
        self._random = random
        self._lose = lose

    def wrap(self, store: Store) -> BadLine:
        return BadLine(store, self._random, self._lose)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        lot = self._random.random()
        if verb in _SAFE or lot >= self._lose:
            return await call()
        fault = LOST
        if lot < self._lose / 2:
            await call()
            fault = UNHEARD
        note("driver", fault=fault, verb=verb)
        raise StoreUnavailableError(f"{verb}: timed out ({fault})")


class Witness(WrappedStore):
    """Records the result of each settle; freezes before one if it is ordered to.

    It freezes when no other call of this process is in progress, so it holds no lock.
    """

    def __init__(self, store: Store, under_way: set[object] | None = None) -> None:
        super().__init__(store)
        self._under_way: set[object] = set() if under_way is None else under_way

    def wrap(self, store: Store) -> Witness:
        return Witness(store, self._under_way)

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


def freeze_at_settle(where: Path, pid: int) -> Path:
    """Have this process stop itself when it is next about to settle something.

    The order is a file, which it removes first.
    """
    order = _order(where, pid)
    order.touch()
    return order


def _sleep_if_told() -> None:
    with contextlib.suppress(FileNotFoundError):
        _order(place(), os.getpid()).unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


def _order(where: Path, pid: int) -> Path:
    return where / "freeze" / str(pid)
