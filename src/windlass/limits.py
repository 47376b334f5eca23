"""Limits of an app: declared in code, and `app.limits` at run time."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from windlass.client import Client
from windlass.core.admission.limit import Limit
from windlass.core.errors import ConfigurationError, StoreDeniedError
from windlass.loop_thread import LoopThread
from windlass.records.limit_records import LimitInfo, LimitRecords, check_name
from windlass.store import Store

T = TypeVar("T")


class DeclaredLimits:
    """The limits declared in the code of an app. Each is stored once, before its first job.

    `unstored` are those that the current store does not have yet.
    """

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self._all: dict[str, Limit] = {}
        for name, limit in limits.items():
            check_name(name)
            if not isinstance(limit, Limit):
                raise ConfigurationError(
                    f"limits has {limit!r:.80} for {name}; write Limit(concurrency=5)"
                )
        self._all |= limits
        self.unstored = dict(limits)

    def check(self, new: Iterable[tuple[str, Limit]]) -> None:
        for name, limit in new:
            if self._all.get(name, limit) != limit:
                raise ConfigurationError(
                    f"two limits are declared for {name}: {self._all[name]} and {limit}; "
                    "remove one of them"
                )

    def add(self, new: Iterable[tuple[str, Limit]]) -> None:
        added = {name: limit for name, limit in new if name not in self._all}
        self._all |= added
        self.unstored.update(added)

    def set_stored(self, names: Collection[str]) -> set[str]:
        """Set which limits the current store has; return those that the previous one had."""
        previous = self._all.keys() - self.unstored.keys()
        self.unstored = {name: limit for name, limit in self._all.items() if name not in names}
        return previous

    async def store(self, store: Store) -> None:
        """Store the limits that are not stored yet."""
        unstored = self.unstored  # `replace_store` may replace the attribute meanwhile
        if new := dict(unstored):
            # An API key without this permission leaves it to the workers, which do the same.
            with contextlib.suppress(StoreDeniedError):
                await LimitRecords(store).declare(new)
            for name in new:
                unstored.pop(name, None)


class LimitsApp(Protocol):
    """The parts of an app that `Limits` needs."""

    @property
    def sync(self) -> LoopThread: ...
    def client(self) -> Client: ...


class Limits:
    """The stored limits: declared in code, or set at run time.

    Names are `queue:NAME`, `task:NAME`, and `key:NAME` for each key of a task.
    """

    def __init__(self, app: LimitsApp) -> None:
        self._app = app

    async def alist(self) -> Sequence[LimitInfo]:
        """List all limits by name, with the number of slots in use and of waiting jobs."""
        return await self._records.list()

    def list(self) -> Sequence[LimitInfo]:
        return self._call(self.alist())

    async def aset(self, name: str, limit: Limit) -> LimitInfo:
        """Set a limit, overriding the one declared in code, until it is reset."""
        return await self._records.set(name, limit)

    def set(self, name: str, limit: Limit) -> LimitInfo:
        return self._call(self.aset(name, limit))

    async def areset(self, name: str) -> LimitInfo | None:
        """Remove the override. Returns the limit declared in code; None if there is none."""
        return await self._records.reset(name)

    def reset(self, name: str) -> LimitInfo | None:
        return self._call(self.areset(name))

    async def aremove(self, name: str) -> LimitInfo:
        """Remove a limit. A limit declared in code is stored again when a worker starts."""
        return await self._records.remove(name)

    def remove(self, name: str) -> LimitInfo:
        return self._call(self.aremove(name))

    @property
    def _records(self) -> LimitRecords:
        return LimitRecords(self._app.client().store)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.sync.call(work)
