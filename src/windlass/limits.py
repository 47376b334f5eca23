"""Limits in a user's hands: `app.limits`, to see and to change them at run time."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from windlass.client import Client
from windlass.core.gate import Limit
from windlass.gatekeeper import Gatekeeper, Limited
from windlass.sync import LoopThread

T = TypeVar("T")


class Home(Protocol):
    """What limits need of the app they belong to."""

    @property
    def sync(self) -> LoopThread: ...
    def client(self) -> Client: ...


class Limits:
    """The limits that are stored, whoever made them: code, a program or a person.

    Names are `queue:NAME`, `task:NAME`, and `key:NAME` for each key of a task.
    """

    def __init__(self, app: Home) -> None:
        self._app = app

    async def alist(self) -> Sequence[Limited]:
        """All of them, by name, with how many hold a slot and how many wait."""
        return await self._keeper.list()

    def list(self) -> Sequence[Limited]:
        return self._call(self.alist())

    async def aset(self, name: str, limit: Limit) -> Limited:
        """Let this one hold, whatever the code says, until it is reset."""
        return await self._keeper.set(name, limit)

    def set(self, name: str, limit: Limit) -> Limited:
        return self._call(self.aset(name, limit))

    async def areset(self, name: str) -> Limited | None:
        """Back to what the code says; None if it says nothing, and there is no limit any more."""
        return await self._keeper.reset(name)

    def reset(self, name: str) -> Limited | None:
        return self._call(self.areset(name))

    async def aremove(self, name: str) -> Limited:
        """Let all pass. What code declares comes back when one that declares it starts."""
        return await self._keeper.remove(name)

    def remove(self, name: str) -> Limited:
        return self._call(self.aremove(name))

    @property
    def _keeper(self) -> Gatekeeper:
        return Gatekeeper(self._app.client().store)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.sync.call(work)
