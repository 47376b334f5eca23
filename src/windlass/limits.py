"""Limits: `app.limits` for users, the limit records of a store, and limits declared in code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from windlass.client import Client
from windlass.core.admission.gates import KEY, LIMIT, GateStats, Limit, Setting, check_name
from windlass.core.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    StoreDeniedError,
)
from windlass.core.records import Entry, Put
from windlass.core.sizes import check_text
from windlass.store import Store
from windlass.sync import LoopThread

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A limit as it stands, when somebody asked.

    name: of what is limited: queue:NAME, task:NAME, or key:NAME for each key of a task
    limit: the one that holds
    declared: what code says; None if no code does
    given: what a person or a program set over it; None if nobody did
    holding: how many jobs hold a slot of it: in line or running; None for a limit per key
    waiting: how many jobs wait at it, up to 10,000; None for a limit per key
    """

    name: str
    limit: Limit
    declared: Limit | None
    given: Limit | None
    holding: int | None = None
    waiting: int | None = None


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


class Gatekeeper:
    """Speaks to one store handle, on the event loop that owns it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> Sequence[Limited]:
        """All of them, by name."""
        found: list[tuple[str, Setting]] = []
        after = ""
        while entries := await self._store.list_records(LIMIT, after):
            found += [(entry.key, Setting.decode(entry.value)) for entry in entries]
            after = entries[-1].key
        return await self._limited(found)

    async def set(self, name: str, limit: Limit) -> Limited:
        """Let this one hold, whatever the code says, until it is reset."""
        _check(name)
        if not isinstance(limit, Limit):
            raise InvalidArgumentError(
                f'the limit of {name} is {limit!r:.80}; write Limit(concurrency=5, rate="100/1m")'
            )
        setting = await self._change(name, lambda old: replace(old, given=limit))
        [answer] = await self._limited([(name, setting)])
        return answer

    async def reset(self, name: str) -> Limited | None:
        """Back to what the code says; None if it says nothing, and there is no limit any more."""
        _check(name)
        await self._known(name)
        setting = await self._change(name, lambda old: replace(old, given=None))
        if setting.limit is None:
            return None
        [answer] = await self._limited([(name, setting)])
        return answer

    async def remove(self, name: str) -> Limited:
        """Let all pass. What code declares comes back when one that declares it starts."""
        _check(name)
        setting = Setting.decode((await self._known(name)).value)
        [answer] = await self._limited([(name, setting)])
        await self._store.delete_records(LIMIT, [name])
        return answer

    async def declare(self, limits: Mapping[str, Limit]) -> None:
        """Store what code says, where it said something else before. What a person set stays."""
        entries = await self._store.get_records(LIMIT, list(limits))
        found = zip(limits.items(), entries, strict=True)
        # Those that are not there come first: some may add a limit, and change none.
        for (name, limit), entry in sorted(found, key=lambda one: one[1] is not None):
            if entry is None or Setting.decode(entry.value).declared != limit:
                await self._change(name, lambda old, limit=limit: replace(old, declared=limit))  # type: ignore[misc]

    async def _change(self, name: str, change: Callable[[Setting], Setting]) -> Setting:
        """By compare-and-set: whoever changes the other half at the same time is heard, too."""
        while True:
            [entry] = await self._store.get_records(LIMIT, [name])
            old = Setting() if entry is None else Setting.decode(entry.value)
            new = change(old)
            if new == old:
                return old
            if new.limit is None:
                await self._store.delete_records(LIMIT, [name])
                return new
            version = 0 if entry is None else entry.version
            wish = Put(kind=LIMIT, key=name, value=new.encode(), expected=version)
            [answer] = await self._store.put_records([wish])
            if answer.applied:
                return new

    async def _known(self, name: str) -> Entry:
        [entry] = await self._store.get_records(LIMIT, [name])
        if entry is None:
            raise NotFoundError(f"{name} has no limit")
        return entry

    async def _limited(self, found: Sequence[tuple[str, Setting]]) -> Sequence[Limited]:
        names = [name for name, _ in found if not name.startswith(KEY)]  # which have many gates
        stats = dict(zip(names, await self._store.gates(names), strict=True))
        return [_limited(name, setting, stats.get(name)) for name, setting in found]


def _limited(name: str, setting: Setting, stats: GateStats | None) -> Limited:
    assert setting.limit is not None
    return Limited(
        name=name,
        limit=setting.limit,
        declared=setting.declared,
        given=setting.given,
        holding=None if stats is None else stats.holding,
        waiting=None if stats is None else stats.waiting,
    )


def _check(name: Any) -> None:
    check_text("the name of a limit", name)
    check_name(name)


class Declared:
    """What an app's code limits. Each limit is stored once, before a job can come to it.

    `told` are those that the present store has heard of.
    """

    def __init__(self, given: Mapping[str, Limit]) -> None:
        self._all: dict[str, Limit] = {}
        self.told: set[str] = set()
        for name, limit in given.items():
            _check(name)
            if not isinstance(limit, Limit):
                raise ConfigurationError(
                    f"limits has {limit!r:.80} for {name}; write Limit(concurrency=5)"
                )
        self._all |= given

    def check(self, new: Iterable[tuple[str, Limit]]) -> None:
        for name, limit in new:
            if self._all.get(name, limit) != limit:
                raise ConfigurationError(
                    f"two limits are declared for {name}: {self._all[name]}, and {limit}; "
                    "take one of them out"
                )

    def add(self, new: Iterable[tuple[str, Limit]]) -> None:
        self._all |= dict(new)

    @property
    def owing(self) -> bool:
        """Whether the store is still to hear of some."""
        return len(self.told) < len(self._all)

    async def tell(self, store: Store) -> None:
        told = self.told  # of the store that is there now
        new = {name: limit for name, limit in list(self._all.items()) if name not in told}
        if new:
            # Whose key may not set limits leaves it to the workers, which declare the same.
            with contextlib.suppress(StoreDeniedError):
                await Gatekeeper(store).declare(new)
            told.update(new)
