"""Transaction of the caller on the store's connection: rows and jobs commit together.

While it is open, every other write of this process waits. So it has a time limit: after it, the
transaction is rolled back, and its next use raises ConflictError.
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

from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.errors import ConflictError, StoreError
from windlass.core.job.new_job import NewJob
from windlass.stores.sqlite.engine import SqliteEngine
from windlass.stores.sqlite.errors import translate
from windlass.stores.sqlite.writes import enqueue_jobs
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction

T = TypeVar("T")
DEFAULT_SECONDS = 5.0


class _RolledBack(Exception):  # noqa: N818 - requested by the caller
    pass


class SqliteTransaction:
    """Runs on the writer thread, controlled by the caller's thread."""

    def __init__(self, engine: SqliteEngine, seconds: float = DEFAULT_SECONDS) -> None:
        self._path = engine.config.path
        self._seconds = seconds
        self._process = os.getpid()
        self._commands: SimpleQueue[
            tuple[Callable[[WriteTransaction], Any], Future[Any]] | bool
        ] = SimpleQueue()
        self._lock = Lock()  # no command is queued after the end
        self._ended = False
        self._done = engine.write_blocking(self._run, alone=True)
        self._done.add_done_callback(self._end)

    def _run(self, tx: WriteTransaction) -> None:
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                command = self._commands.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise ConflictError(
                    f"the transaction was open for more than {self._seconds:g} s and was rolled "
                    "back, because it blocks all other writes; do slow work before it"
                ) from None
            if command is True:
                return
            if command is False:
                raise _RolledBack
            self._execute(tx, *command)

    def _execute(
        self, tx: WriteTransaction, run: Callable[[WriteTransaction], T], future: Future[T]
    ) -> None:
        """Run one command and set its result; raise if it ended the transaction."""
        try:
            result = run(tx)
        except BaseException as error:
            future.set_exception(error)
            if not tx.connection.in_transaction:
                raise  # SQLite has rolled back: the next statement would run outside of it
            return
        if tx.connection.in_transaction:
            future.set_result(result)
            return
        conflict = ConflictError(
            "a statement ended the transaction; use commit() or rollback() of this object"
        )
        future.set_exception(conflict)
        raise conflict

    def _end(self, _: Future[None]) -> None:
        with self._lock:
            self._ended = True
            while not self._commands.empty():
                command = self._commands.get()
                if not isinstance(command, bool):
                    command[1].set_exception(self._end_error())

    def _end_error(self) -> BaseException:
        error = self._done.exception()
        if error is None or isinstance(error, _RolledBack):
            return ConflictError("the transaction has ended")
        return error

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ConflictError("a transaction belongs to the process that started it")

    def _do(self, run: Callable[[WriteTransaction], T]) -> T:
        self._check_process()
        future: Future[T] = Future()
        with self._lock:
            if self._ended:
                raise self._end_error()
            self._commands.put((run, future))
        return future.result()

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[Any]:
        """Run a statement of the caller in this transaction; return its rows."""

        def run(tx: WriteTransaction) -> list[Any]:
            try:
                return tx.connection.execute(sql, parameters).fetchall()
            except (apsw.SQLError, apsw.ConstraintError, apsw.BindingsError, apsw.MismatchError):
                raise  # an error in the caller's statement: SQLite's own exception
            except apsw.Error as error:
                raise translate(error, self._path) from error

        return self._do(run)

    def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        """Enqueue all jobs, or none if this raises. With `atomic`, none if one is refused."""
        enqueue = enqueue_jobs.enqueue_atomic if atomic else enqueue_jobs.enqueue

        def run(tx: WriteTransaction) -> list[EnqueueResult]:
            try:
                tx.connection.execute("SAVEPOINT windlass_enqueue")
                results = enqueue(tx, jobs)
                tx.connection.execute("RELEASE windlass_enqueue")
            except BaseException as error:
                if tx.connection.in_transaction:
                    tx.connection.execute("ROLLBACK TO windlass_enqueue")
                if isinstance(error, apsw.Error):
                    raise translate(error, self._path) from error
                raise
            return results

        return self._do(run)

    async def aenqueue(
        self, jobs: Sequence[NewJob], *, atomic: bool = False
    ) -> list[EnqueueResult]:
        """Enqueue from async code. Does not block: the transaction already holds the writer."""
        return self.enqueue(jobs, atomic=atomic)

    def commit(self) -> None:
        self._check_process()
        self._commands.put(True)
        try:
            self._done.result()
        except _RolledBack:
            raise self._end_error() from None

    def rollback(self) -> None:
        self._check_process()
        self._commands.put(False)
        try:
            self._done.result()
        except (_RolledBack, ConflictError, StoreError):
            return
