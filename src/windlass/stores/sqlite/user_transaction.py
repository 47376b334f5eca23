"""The caller's own transaction on the store's connection: their rows and their jobs, both or none.

While it is open, every other write of this process waits for it, so it is short: past its time it
is rolled back and its next use says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import apsw

from windlass.core.decisions.enqueue import Enqueued
from windlass.core.errors import ConflictError, StoreError
from windlass.core.job.row import NewJob
from windlass.stores.sqlite.engine import Engine
from windlass.stores.sqlite.errors import translate
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.transaction import Tx

T = TypeVar("T")
DEFAULT_SECONDS = 5.0


class _RolledBack(Exception):  # noqa: N818 - not an error: the caller asked for it
    pass


class Session:
    """Runs on the writer's thread, driven from the caller's."""

    def __init__(self, engine: Engine, seconds: float = DEFAULT_SECONDS) -> None:
        self._path = engine.config.path
        self._seconds = seconds
        self._process = os.getpid()
        self._commands: SimpleQueue[tuple[Callable[[Tx], Any], Future[Any]] | bool] = SimpleQueue()
        self._lock = Lock()  # so that no command slips in behind the end
        self._over = False
        self._done = engine.write_blocking(self._run, alone=True)
        self._done.add_done_callback(self._end)

    def _run(self, tx: Tx) -> None:
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                command = self._commands.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise ConflictError(
                    f"the transaction was open for more than {self._seconds:g} s and was rolled "
                    "back, because all other writes wait for it; do the slow work before it"
                ) from None
            if command is True:
                return
            if command is False:
                raise _RolledBack
            self._obey(tx, *command)

    def _obey(self, tx: Tx, run: Callable[[Tx], T], future: Future[T]) -> None:
        """Do one thing and tell how it went; raises if the transaction did not outlive it."""
        try:
            result = run(tx)
        except BaseException as error:
            future.set_exception(error)
            if not tx.connection.in_transaction:
                raise  # SQLite has rolled back by itself: the next statement would stand alone
            return
        if tx.connection.in_transaction:
            future.set_result(result)
            return
        ended = ConflictError(
            "a statement ended the transaction itself; use the session's commit() or rollback()"
        )
        future.set_exception(ended)
        raise ended

    def _end(self, _: Future[None]) -> None:
        with self._lock:
            self._over = True
            while not self._commands.empty():
                command = self._commands.get()
                if not isinstance(command, bool):
                    command[1].set_exception(self._why())

    def _why(self) -> BaseException:
        error = self._done.exception()
        if error is None or isinstance(error, _RolledBack):
            return ConflictError("the transaction is over")
        return error

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ConflictError("a transaction belongs to the process that began it")

    def _do(self, run: Callable[[Tx], T]) -> T:
        self._check_process()
        future: Future[T] = Future()
        with self._lock:
            if self._over:
                raise self._why()
            self._commands.put((run, future))
        return future.result()

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Run a statement of one's own in this transaction; answer its rows."""

        def run(tx: Tx) -> list[Any]:
            try:
                return tx.connection.execute(sql, parameters).fetchall()
            except (apsw.SQLError, apsw.ConstraintError, apsw.BindingsError, apsw.MismatchError):
                raise  # the caller's own mistake, in SQLite's own words
            except apsw.Error as error:
                raise translate(error, self._path) from error

        return self._do(run)

    def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        """All of them or, if this raises, none; with `together`, also if one of them is refused."""
        put_in = enqueue_jobs.together if together else enqueue_jobs.enqueue

        def run(tx: Tx) -> list[Enqueued]:
            try:
                tx.connection.execute("SAVEPOINT windlass_enqueue")
                answers = put_in(tx, jobs)
                tx.connection.execute("RELEASE windlass_enqueue")
            except BaseException as error:
                if tx.connection.in_transaction:
                    tx.connection.execute("ROLLBACK TO windlass_enqueue")
                if isinstance(error, apsw.Error):
                    raise translate(error, self._path) from error
                raise
            return answers

        return self._do(run)

    async def aenqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        """The same: the block holds the writer already, so that this waits for nobody."""
        return self.enqueue(jobs, together=together)

    def commit(self) -> None:
        self._check_process()
        self._commands.put(True)
        try:
            self._done.result()
        except _RolledBack:
            raise self._why() from None

    def rollback(self) -> None:
        self._check_process()
        self._commands.put(False)
        try:
            self._done.result()
        except (_RolledBack, ConflictError, StoreError):
            return
