"""Interface of a database server that the measured queues share; each round has a new database."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Protocol


class DatabaseServer(Protocol):
    """`durability` is the reported version and sync settings; `synced` is the time of a sync.

    `pid` is its process if the bench started it on this machine.
    """

    durability: str
    synced: str
    pid: int | None

    @abstractmethod
    def new_database(self) -> AbstractContextManager[str]:
        """Return a context manager with the URL of an empty database."""

    @abstractmethod
    def quiesce(self, url: str) -> None:
        """Flush pending writes and update statistics, so that no system pays for earlier work."""
