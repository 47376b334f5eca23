"""The caller's own transaction on the store's connection: their rows and their jobs, both or none.

While it is open, every other write of this process waits for it, so it is short: past its time it
is rolled back and its next use says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from windlass.core.enqueue import Enqueued
from windlass.core.errors import ConflictError, StoreError
from windlass.core.job import NewJob
from windlass.stores.sqlite.engine import Engine, Tx
from windlass.stores.sqlite.errors import translate
from windlass.stores.sqlite.jobs import enqueue

T = TypeVar("T")
DEFAULT_SECONDS = 5.0


class _RolledBack(Exception):  # noqa: N818 - not an error: the caller asked for it
    pass


class Session:
    """Runs on the writer's thread, driven from the caller's."""

    def __init__(self, engine: Engine, seconds: float = DEFAULT_SECONDS) -> None:
        self._path = engine.config.path
        self._seconds = seconds
        self._commands: SimpleQueue[tuple[Callable[[Tx], Any], Future[Any]] | bool] = SimpleQueue()
        self._over = False
        self._done = engine.write_blocking(self._run, alone=True)

    def _run(self, tx: Tx) -> None:
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                command = self._commands.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                self._over = True
                self._refuse_the_rest()
                raise ConflictError(
                    f"the transaction was open for more than {self._seconds:g} s and was rolled "
                    "back, because all other writes wait for it; do the slow work before it"
                ) from None
            if command is True:
                return
            if command is False:
                raise _RolledBack
            run, future = command
            try:
                future.set_result(run(tx))
            except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
                future.set_exception(error)

    def _refuse_the_rest(self) -> None:
        while not self._commands.empty():
            command = self._commands.get()
            if not isinstance(command, bool):
                command[1].set_exception(ConflictError("the transaction is over"))

    def _do(self, run: Callable[[Tx], T]) -> T:
        if self._over or self._done.done():
            self._done.result(timeout=0)
            raise ConflictError("the transaction is over")
        future: Future[T] = Future()
        self._commands.put((run, future))
        return future.result()

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Run a statement of one's own in this transaction; answer its rows."""

        def run(tx: Tx) -> list[Any]:
            try:
                return tx.connection.execute(sql, parameters).fetchall()
            except apsw.SQLError:
                raise  # the caller's own mistake, in SQLite's own words
            except apsw.ConstraintError:
                raise
            except apsw.Error as error:
                raise translate(error, self._path) from error

        return self._do(run)

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._do(lambda tx: enqueue(tx, jobs))

    def commit(self) -> None:
        self._commands.put(True)
        self._done.result()

    def rollback(self) -> None:
        self._commands.put(False)
        try:
            self._done.result()
        except (_RolledBack, ConflictError, StoreError):
            return
