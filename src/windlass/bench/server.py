"""CONTRACT: a server that several sides keep their jobs on, one round after the other."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Protocol


class Server(Protocol):
    """`durability` is its version and how it syncs, as the server itself says; `synced` is when.

    `pid` is its process, if it runs on this machine and is ours to look at.
    """

    durability: str
    synced: str
    pid: int | None

    @abstractmethod
    def fresh(self) -> AbstractContextManager[str]:
        """The URL of an empty database, for the block."""

    @abstractmethod
    def rest(self, url: str) -> None:
        """Write out what is pending, look at new rows: nobody pays for what was before."""
