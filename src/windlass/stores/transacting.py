"""The extra power of a store that can lend its own connection for a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from windlass.core.enqueue import Enqueued
from windlass.core.job import NewJob


class Transaction(Protocol):
    """The caller's rows and jobs, both or none."""

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]: ...

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@runtime_checkable
class Transacting(Protocol):
    def transaction(self, seconds: float) -> Transaction: ...
