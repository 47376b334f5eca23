"""The extra power of stores that can put jobs into a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Transition
from windlass.core.job.row import NewJob


class Joined(Protocol):
    """Where jobs go that are enqueued inside a block: into its transaction."""

    def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        """With `together`, all of them or none; and then their transaction goes on."""
        ...

    async def aenqueue(
        self, jobs: Sequence[NewJob], *, together: bool = False
    ) -> list[Enqueued]: ...


class Transaction(Joined, Protocol):
    """The caller's rows and jobs on the store's own connection, both or none."""

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@runtime_checkable
class Transacting(Protocol):
    """A store that lends its own connection (SQLite)."""

    def transaction(self, seconds: float) -> Transaction: ...


class Guest(Joined, Protocol):
    """Jobs on a connection of the caller's."""

    def end(self) -> None: ...


@runtime_checkable
class Joining(Protocol):
    """A store that takes the caller's own connection (PostgreSQL)."""

    def within(self, connection: Any) -> Guest: ...

    def settlement(self, wish: Transition) -> tuple[str, str]:
        """A success as a statement for the task's own connection, and its text."""
        ...
