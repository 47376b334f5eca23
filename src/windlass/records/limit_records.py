"""Limit records of a store: list, set, reset, remove, and update from code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.core.admission.gates import GateStats
from windlass.core.admission.limit import KEY, LIMIT, Limit, LimitSetting, check_limit_name
from windlass.core.errors import InvalidArgumentError, NotFoundError
from windlass.core.size_limits import check_text
from windlass.core.versioned_record import Entry, Put
from windlass.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitInfo:
    """A limit and its current use.

    name: queue:NAME, task:NAME, or key:NAME for each key of a task
    limit: the limit in effect
    declared: the limit declared in code; None if there is none
    override: the limit set at run time, which overrides the declared one; None if there is none
    in_use: number of jobs that hold a slot: queued or running; None for a limit per key
    waiting: number of jobs that wait at it, up to 10,000; None for a limit per key
    """

    name: str
    limit: Limit
    declared: Limit | None
    override: Limit | None
    in_use: int | None = None
    waiting: int | None = None


class LimitRecords:
    """The limit records of a store, through one handle on its event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> Sequence[LimitInfo]:
        """List all limits by name."""
        found: list[tuple[str, LimitSetting]] = []
        after = ""
        while entries := await self._store.list_records(LIMIT, after):
            found += [(entry.key, LimitSetting.decode(entry.value)) for entry in entries]
            after = entries[-1].key
        return await self._infos(found)

    async def set(self, name: str, limit: Limit) -> LimitInfo:
        """Set a limit, overriding the one declared in code, until it is reset."""
        check_name(name)
        if not isinstance(limit, Limit):
            raise InvalidArgumentError(
                f'the limit of {name} is {limit!r:.80}; write Limit(concurrency=5, rate="100/1m")'
            )
        setting = await self._change(name, lambda old: replace(old, override=limit))
        [info] = await self._infos([(name, setting)])
        return info

    async def reset(self, name: str) -> LimitInfo | None:
        """Remove the override. Returns the limit declared in code; None if there is none."""
        check_name(name)
        await self._read(name)
        setting = await self._change(name, lambda old: replace(old, override=None))
        if setting.limit is None:
            return None
        [info] = await self._infos([(name, setting)])
        return info

    async def remove(self, name: str) -> LimitInfo:
        """Remove a limit. A limit declared in code is stored again when a worker starts."""
        check_name(name)
        setting = LimitSetting.decode((await self._read(name)).value)
        [info] = await self._infos([(name, setting)])
        await self._store.delete_records(LIMIT, [name])
        return info

    async def declare(self, limits: Mapping[str, Limit]) -> None:
        """Store the limits declared in code, where they changed. Overrides are kept."""
        entries = await self._store.get_records(LIMIT, list(limits))
        found = zip(limits.items(), entries, strict=True)
        # New limits first: some API keys may add limits but not change them.
        for (name, limit), entry in sorted(found, key=lambda one: one[1] is not None):
            if entry is None or LimitSetting.decode(entry.value).declared != limit:
                await self._change(name, lambda old, limit=limit: replace(old, declared=limit))  # type: ignore[misc]

    async def _change(
        self, name: str, change: Callable[[LimitSetting], LimitSetting]
    ) -> LimitSetting:
        """Change a record by compare-and-set, so that concurrent changes are not lost."""
        while True:
            [entry] = await self._store.get_records(LIMIT, [name])
            old = LimitSetting() if entry is None else LimitSetting.decode(entry.value)
            new = change(old)
            if new == old:
                return old
            if new.limit is None:
                await self._store.delete_records(LIMIT, [name])
                return new
            version = 0 if entry is None else entry.version
            request = Put(kind=LIMIT, key=name, value=new.encode(), expected=version)
            [result] = await self._store.put_records([request])
            if result.applied:
                return new

    async def _read(self, name: str) -> Entry:
        [entry] = await self._store.get_records(LIMIT, [name])
        if entry is None:
            raise NotFoundError(f"{name} has no limit")
        return entry

    async def _infos(self, found: Sequence[tuple[str, LimitSetting]]) -> Sequence[LimitInfo]:
        # A limit per key has many gates, so it has no single count.
        names = [name for name, _ in found if not name.startswith(KEY)]
        stats = dict(zip(names, await self._store.insights.gates(names), strict=True))
        return [_info(name, setting, stats.get(name)) for name, setting in found]


def _info(name: str, setting: LimitSetting, stats: GateStats | None) -> LimitInfo:
    assert setting.limit is not None
    return LimitInfo(
        name=name,
        limit=setting.limit,
        declared=setting.declared,
        override=setting.override,
        in_use=None if stats is None else stats.in_use,
        waiting=None if stats is None else stats.waiting,
    )


def check_name(name: Any) -> None:
    """Raise an error unless this is a valid name of a limit."""
    check_text("the name of a limit", name)
    check_limit_name(name)
