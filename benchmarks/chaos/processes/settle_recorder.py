"""Store wrapper in a worker: records the result of each settle, and can freeze before one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.chaos.ledger import note, storm_directory
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Transition
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class SettleRecorder(WrappedStore):
    """Records the result of each settle; freezes before one on request.

    It freezes when no other call of this process is in progress, so it holds no lock.
    """

    def __init__(self, store: Store, in_progress: set[object] | None = None) -> None:
        super().__init__(store)
        self._in_progress: set[object] = set() if in_progress is None else in_progress

    def wrap(self, store: Store) -> SettleRecorder:
        return SettleRecorder(store, self._in_progress)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if verb == "wait":
            return await call()
        call_id = object()
        self._in_progress.add(call_id)
        try:
            return await call()
        finally:
            self._in_progress.discard(call_id)

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        settles = any(
            isinstance(request, Transition) and request.trigger.settles for request in requests
        )
        if settles and not self._in_progress:
            _freeze_if_requested()
        answers = await super().apply(requests)
        if settles:
            facts = [
                (
                    str(transition.job_id),
                    transition.fence,
                    transition.trigger,
                    answer.status,
                    answer.state,
                )
                for transition, answer in zip(requests, answers, strict=True)
                if isinstance(transition, Transition) and transition.trigger.settles
            ]
            note("settle", results=facts, pid=os.getpid())
        return answers


def freeze_at_settle(directory: Path, pid: int) -> Path:
    """Request that this process stops itself before its next settle.

    The request is a file; the process removes it first.
    """
    request = _request_file(directory, pid)
    request.touch()
    return request


def _freeze_if_requested() -> None:
    with contextlib.suppress(FileNotFoundError):
        _request_file(storm_directory(), os.getpid()).unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


def _request_file(directory: Path, pid: int) -> Path:
    return directory / "freeze" / str(pid)
