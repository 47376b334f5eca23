"""Suspension of a task that waits for child jobs or a signal, without a slot.

The task raises `Suspend`: its attempt ends, uncounted. When the awaited jobs have ended or the
signal arrives, the task runs again from its beginning. Completed steps and the wait itself then
return immediately.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.job.new_job import NewJob


class Suspend(BaseException):
    """Ends an attempt that waits. A BaseException, so that `except Exception` does not catch it."""

    def __init__(
        self,
        *,
        awaits: Sequence[UUID] = (),
        children: Sequence[NewJob] = (),
        timeout: float | None = None,
        signals: int | None = None,
    ) -> None:
        super().__init__("the task is suspended; do not catch this exception")
        self.awaits = tuple(awaits)
        self.children = tuple(children)
        self.timeout = timeout
        self.signals = signals


def find_suspension(error: BaseException) -> Suspend | None:
    """Return the Suspend in an error or, for concurrent waits, in its exception group."""
    if isinstance(error, Suspend):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (find_suspension(member) for member in error.exceptions)
        return next((suspend for suspend in found if suspend), None)
    return None
