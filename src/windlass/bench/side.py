"""CONTRACT: one job queue under measure, and the no-op job that every side runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from windlass.bench.ledger import Ledger

PAYLOAD = 100  # bytes
DIGITS = 8
POLL = 0.005  # seconds between two looks of a side that can only poll


def payload(number: int) -> str:
    """The argument of a job: its number, and padding."""
    return f"{number:0{DIGITS}}".ljust(PAYLOAD, "x")


class Side(Protocol):
    """Opened on a directory, in each process anew.

    `library` is the module that must be there, `package` what to install for it. `durability` says
    how its commits are synced, `bulk` how it puts in many jobs at once (None: it cannot).
    """

    library: ClassVar[str]
    package: ClassVar[str]
    durability: ClassVar[str]
    bulk: ClassVar[str | None]

    @abstractmethod
    def __init__(self, directory: Path) -> None: ...

    @abstractmethod
    def put(self, payload: str) -> None:
        """Enqueue one job; it is durable when this returns."""

    @abstractmethod
    def put_many(self, payloads: Sequence[str]) -> None:
        """The same for many at once; called only if `bulk` says how."""

    @abstractmethod
    def close(self) -> None:
        """Called by producers, which leave the file as they would leave it in life."""

    @abstractmethod
    def work(self, ledger: Ledger) -> None:
        """Be a worker, until SIGTERM: tell the ledger when it begins, runs and settles."""
