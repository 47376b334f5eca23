"""CONTRACT: one job queue under measure, and the no-op job that every side runs."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import Place

PAYLOAD = 100  # bytes
DIGITS = 8
POLL = 0.005  # seconds between two looks of a side that can only poll
EACH_COMMIT = "each commit"  # when it is synced; whoever promises less must say so
BOOT = Path(__file__).with_name("child_boot.py")


def payload(number: int) -> str:
    """The argument of a job: its number, and padding."""
    return f"{number:0{DIGITS}}".ljust(PAYLOAD, "x")


def in_python(module: str) -> list[str]:
    """Starts a process of the side in this module; a role and its numbers are appended."""
    return [sys.executable, "-P", str(BOOT), module]


def installed(package: str) -> str | None:
    """The version of a package; None if it is not there."""
    from importlib import metadata  # noqa: PLC0415 - heavy, and workers under measure need it not

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Side(Protocol):
    """Opened in a place, in each process anew.

    `library` is the module that must be there, `package` what to install for it. `durability` says
    what a commit promises and what is kept of a job. `bulk` says how many jobs are put in at once,
    `together` how many single calls are under way at once (None: it cannot). `server` is the kind
    of server that it needs. A slow side gets only a `share` of the jobs, so that a round ends.
    """

    library: ClassVar[str]
    package: ClassVar[str]
    durability: ClassVar[str]
    bulk: ClassVar[str | None]
    together: ClassVar[str | None] = None
    server: ClassVar[str | None] = None
    share: ClassVar[float] = 1.0

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here; None if it can."""
        if find_spec(cls.library) is None:
            return f"not installed: pip install {cls.package}"
        return None

    @classmethod
    def version(cls) -> str | None:
        return installed(cls.package.partition("[")[0])

    @classmethod
    def program(cls, module: str) -> list[str]:
        """What starts its producers and workers: they keep to what `child` says of the roles."""
        return in_python(module)

    @abstractmethod
    def __init__(self, place: Place) -> None: ...

    @abstractmethod
    def put(self, payload: str) -> None:
        """Enqueue one job; it is durable when this returns."""

    def put_each(self, payloads: Sequence[str]) -> None:
        """One after the other."""
        for each in payloads:
            self.put(each)

    def put_together(self, payloads: Sequence[str]) -> None:
        """Each by a call of its own, all under way at once; called only if `together` says how."""
        raise NotImplementedError

    def put_many(self, payloads: Sequence[str]) -> None:
        """Many by one call; called only if `bulk` says how."""
        raise NotImplementedError

    def rest(self, seconds: float) -> None:
        """Let time pass between two calls; what the library does in the background goes on."""
        time.sleep(seconds)

    @abstractmethod
    def close(self) -> None:
        """Called by producers, which leave the queue as they would leave it in life."""

    @abstractmethod
    def work(self, ledger: Ledger) -> None:
        """Be a worker, until SIGTERM: tell the ledger when it begins, and what ran."""

    @abstractmethod
    def unfinished(self) -> int:
        """Jobs that are not done with, durably; asked by a process of its own."""
