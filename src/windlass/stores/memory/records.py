"""Record methods of the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.admission.limit import LIMIT
from windlass.core.versioned_record import PAUSED, Entry, Put, PutResult, apply_put, check_keys
from windlass.stores.memory import gates
from windlass.stores.memory.reads import MemoryReads


class MemoryRecords(MemoryReads):
    """Store methods for records: reads and versioned writes."""

    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        results = []
        with self._data.lock:
            for put in puts:
                result = apply_put(put, self._unexpired(put.kind, put.key), self._now())
                if result.applied and result.entry is not None:
                    self._data.entries[put.kind, put.key] = result.entry
                    if put.kind == LIMIT:
                        gates.schedule_check(self._data, put.key)
                results.append(result)
        return results

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        check_keys(kind, keys)
        with self._data.lock:
            return [self._unexpired(kind, key) for key in keys]

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        with self._data.lock:
            keys = sorted(
                key for entry_kind, key in self._data.entries if entry_kind == kind and key > after
            )
            entries = [entry for key in keys if (entry := self._unexpired(kind, key)) is not None]
        return entries[:limit]

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        with self._data.lock:
            for key in keys:
                self._data.entries.pop((kind, key), None)
                if kind == LIMIT:
                    gates.schedule_check(self._data, key)
        if kind == PAUSED:
            self._data.work.notify()
