"""Optional protocols of stores that can enqueue inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import Transition
from windlass.core.job.new_job import NewJob


class TransactionEnqueuer(Protocol):
    """Enqueues jobs into the transaction of the current block."""

    def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        """Enqueue jobs. With `atomic`, all or none; a refusal keeps the transaction open."""
        ...

    async def aenqueue(
        self, jobs: Sequence[NewJob], *, atomic: bool = False
    ) -> list[EnqueueResult]: ...


class Transaction(TransactionEnqueuer, Protocol):
    """Transaction on the store's own connection: the caller's rows and jobs, both or none."""

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@runtime_checkable
class SupportsTransaction(Protocol):
    """Store that lends its own connection (SQLite)."""

    def transaction(self, seconds: float) -> Transaction: ...


class ConnectionEnqueuer(TransactionEnqueuer, Protocol):
    """Enqueues jobs on the caller's own connection."""

    def end(self) -> None: ...


@runtime_checkable
class SupportsWithin(Protocol):
    """Store that accepts the caller's own connection (PostgreSQL)."""

    def within(self, connection: Any) -> ConnectionEnqueuer: ...

    def settlement(self, transition: Transition) -> tuple[str, str]:
        """Return the statement and the argument that settle a success on the caller's connection.

        The argument is one text.
        """
        ...
