"""A mistake about the disk, made in a worker's process before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.core.errors import StoreUnavailableError
from windlass.stores.sqlite.engine import Engine
from windlass.stores.sqlite.write_queue import Call
from windlass.stores.sqlite.writes.transaction import Tx


def failed_commit_is_taken_for_done() -> None:
    true = Engine._transaction

    def planted(self: Engine, group: Sequence[Call[Any]]) -> Tx:
        try:
            return true(self, group)
        except StoreUnavailableError:
            return Tx(self._writer(), self.clock.now, followed=self.news.followed)

    Engine._transaction = planted  # type: ignore[method-assign]
