"""A disk bug that is planted in a worker process before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.core.errors import StoreUnavailableError
from windlass.stores.sqlite.engine import SqliteEngine
from windlass.stores.sqlite.writes.write_calls import WriteCall
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


def failed_commit_is_reported_as_done() -> None:
    original = SqliteEngine._transaction

    def planted(self: SqliteEngine, group: Sequence[WriteCall[Any]]) -> WriteTransaction:
        try:
            return original(self, group)
        except StoreUnavailableError:
            return WriteTransaction(
                self._connection or self._open_writer(), self.clock.now, track_changes=True
            )

    SqliteEngine._transaction = planted  # type: ignore[method-assign]
