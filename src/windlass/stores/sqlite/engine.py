"""Engine of one file in one process: a writer thread with group commit, and separate readers.

The writer takes all pending calls, runs them in one transaction, and delivers results after the
commit: concurrent calls share one fsync. If a call raises, the transaction is rolled back and each
call runs alone, so that a bad call fails alone. A crash leaves only whole transactions.

Readers have their own connections; each read is one snapshot. All handles of a process on one file
share one engine. Before a fork all connections are closed; they reopen on next use. SQLite's locks
belong to a process: a child that inherited a connection would assume locks that it does not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Lock, Thread, local
from typing import Any, TypeAlias, TypeVar

import apsw

from windlass.core.clock import Clock
from windlass.core.errors import StoreError, StoreUnavailableError
from windlass.stores.sqlite.config import SqliteConfig
from windlass.stores.sqlite.connection import checkpoint, close_quietly, connect
from windlass.stores.sqlite.errors import translate
from windlass.stores.sqlite.migrator import migrate
from windlass.stores.sqlite.writes.write_calls import WriteCall, deliver, run_group
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction
from windlass.stores.wakeup import JobWakeups, Wakeup

S = TypeVar("S")
T = TypeVar("T")
_Reader: TypeAlias = tuple[Lock, list[apsw.Connection]]  # one per thread; open while in use
MAX_JOBS_PER_COMMIT = 500  # in one transaction; bounds the wait of its first call
FORK_SECONDS = 10.0


class SqliteEngine:
    def __init__(self, config: SqliteConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.work = Wakeup()
        self.job_wakeups = JobWakeups()
        self.migrated: list[str] = []  # by this process, not yet returned by `migrate`
        self._users = 0
        self._broken_by_fork = False
        self._fork_clean = True
        self._reset()
        _register_fork_hooks(self)

    def _reset(self) -> None:
        self._lock = Lock()  # guards starting and stopping
        self._writer_lock = Lock()  # held while the writer's connection is in use
        self._queue: SimpleQueue[WriteCall[Any] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._connection: apsw.Connection | None = None
        self._version: int | None = None
        self._wal_pages = 0
        self._pool: ThreadPoolExecutor | None = None
        self._local = local()
        self._fork_locks: list[Lock] = []
        self._readers: list[_Reader] = []

    # -- handles

    def open(self) -> None:
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Close a handle. The last one closes the file, after all earlier calls have finished."""
        with self._lock:
            self._users -= 1
            thread, pool = self._thread, self._pool
            if self._users > 0:
                return
            self._thread = self._pool = None
            if thread is not None:
                self._queue.put(None)
        if pool is not None:
            pool.shutdown(wait=True)
        if thread is not None:
            thread.join()
        self._close_connections()

    def _close_connections(self) -> None:
        for _, connections in self._readers:
            for connection in connections:
                close_quietly(connection)
            connections.clear()
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None

    # -- writing

    async def write(self, run: Callable[[WriteTransaction], T], size: int = 1) -> T:
        call: WriteCall[T] = WriteCall(run, size=size, loop=asyncio.get_running_loop())
        self._submit(call)
        assert isinstance(call.future, asyncio.Future)
        return await call.future

    async def write_many(
        self, run: Callable[[WriteTransaction, Sequence[S]], list[T]], items: Sequence[S]
    ) -> list[T]:
        """Return one result per item; concurrent calls are merged into one."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        call: WriteCall[list[T]] = WriteCall(run, items=items, size=len(items), loop=loop)
        self._submit(call)
        assert isinstance(call.future, asyncio.Future)
        return await call.future

    def write_blocking(
        self, run: Callable[[WriteTransaction], T], *, alone: bool = False
    ) -> Future[T]:
        call: WriteCall[T] = WriteCall(run, alone=alone)
        self._submit(call)
        assert isinstance(call.future, Future)
        return call.future

    def _submit(self, call: WriteCall[Any]) -> None:
        with self._lock:  # a call is either queued before the end marker or refused
            if self._users == 0 or self._broken_by_fork:
                self._check_usable()
            if self._thread is None:
                thread = Thread(target=self._loop, name="windlass-sqlite", daemon=True)
                thread.start()
                self._thread = thread
            self._queue.put(call)

    def _check_usable(self) -> None:
        if self._users == 0:
            raise StoreUnavailableError(f"the store on {self.config.path} is closed")
        if self._broken_by_fork:
            raise StoreUnavailableError(
                f"this process was forked while a transaction on {self.config.path} was open, so "
                "SQLite cannot be used in it; fork outside of transactions, or use spawn"
            )

    def _loop(self) -> None:
        queue = self._queue
        next_call: WriteCall[Any] | None = None
        while True:
            first = next_call or queue.get()
            next_call = None
            if first is None:
                return
            group, size = [first], first.size
            while not first.alone:
                try:
                    call = queue.get_nowait()
                except Empty:
                    break
                if call is None:
                    queue.put(None)
                    break
                size += call.size
                if call.alone or size > MAX_JOBS_PER_COMMIT:
                    next_call = call
                    break
                group.append(call)
            with self._writer_lock:
                try:
                    self._commit_group(group)
                except BaseException as error:  # noqa: BLE001 - leaves no caller waiting
                    for call in group:
                        call.error = call.error or error
                    deliver(group)
                if self._connection is not None:
                    checkpoint(self._connection, self._wal_pages, self.config)

    def _commit_group(self, group: Sequence[WriteCall[Any]]) -> None:
        tx: WriteTransaction | None = None
        try:
            tx = self._transaction(group)
        except BaseException as error:  # noqa: BLE001 - the callers receive it
            if len(group) > 1 and not isinstance(error, StoreError):
                for call in group:
                    self._commit_group([call])
                return
            for call in group:
                call.error = error
        if tx is not None:
            if tx.work or tx.other_process_wrote:
                self.work.notify()
            if tx.other_process_wrote or (tx.changed_jobs is None and self.job_wakeups.subscribed):
                self.job_wakeups.notify_all()  # also readers that subscribed during the write
            elif tx.changed_jobs:
                self.job_wakeups.notify(tx.changed_jobs)
        deliver(group)  # last, so that the woken event loop finds the GIL free

    def _transaction(self, group: Sequence[WriteCall[Any]]) -> WriteTransaction:
        """Run the group in one transaction; raise StoreError for a file error."""
        try:
            connection = self._connection or self._open_writer()
            tx = WriteTransaction(
                connection, self.clock.now, track_changes=bool(self.job_wakeups.subscribed)
            )
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise translate(error, self.config.path) from error
        try:
            run_group(group, tx)
            tx.finish()
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection)
            if isinstance(error, apsw.Error):
                if len(group) > 1:
                    raise  # each call then runs alone: it may fit, or the bad call fails alone
                raise translate(error, self.config.path) from error
            raise
        return tx

    def _roll_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error:
                # The state of this connection is unknown; the next call opens a new one.
                self._connection = None
                close_quietly(connection)

    def _open_writer(self) -> apsw.Connection:
        connection = connect(self.config)
        try:
            applied = migrate(connection, self.config.path, self.clock.now())
        except BaseException:
            close_quietly(connection)
            raise
        self.migrated += applied
        # Replaces SQLite's automatic checkpoints.
        connection.set_wal_hook(self._record_wal_pages)
        self._connection = connection
        if self._version is not None:
            self._version = -1  # versions of connections differ: report one change too many
        return connection

    def _record_wal_pages(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def check_other_processes(self, tx: WriteTransaction) -> bool:
        """Return whether another process committed since the last call; if so, wake all readers."""
        version: int = tx.connection.pragma("data_version")
        before, self._version = self._version, version
        tx.other_process_wrote = tx.other_process_wrote or (
            before is not None and version != before
        )
        return tx.other_process_wrote

    # -- reading

    async def read(self, run: Callable[[apsw.Connection], T]) -> T:
        """Run in one snapshot, on a reader thread."""
        if self.config.exclusive:
            return await self.write(lambda tx: run(tx.connection))
        if self._connection is None:
            await self.write(lambda _: None)  # creates the file and its schema
        with self._lock:
            self._check_usable()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.config.readers, "windlass-sqlite-read")
            reading = asyncio.get_running_loop().run_in_executor(self._pool, self._read, run)
        return await reading

    def _read(self, run: Callable[[apsw.Connection], T]) -> T:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = (Lock(), [])
            self._readers.append(reader)
        lock, connections = reader
        with lock:
            try:
                if not connections:
                    connections.append(connect(self.config))
                with _snapshot(connections[0]):
                    return run(connections[0])
            except apsw.Error as error:
                raise translate(error, self.config.path) from error

    # -- forks

    def before_fork(self) -> None:
        locks = [self._lock, self._writer_lock, *(lock for lock, _ in self._readers)]
        # A transaction that this thread has open cannot be waited for; then nothing is closed.
        self._fork_locks = [lock for lock in locks if lock.acquire(timeout=FORK_SECONDS)]
        self._fork_clean = len(self._fork_locks) == len(locks)
        if self._fork_clean:
            self._close_connections()

    def after_fork_in_parent(self) -> None:
        while self._fork_locks:
            self._fork_locks.pop().release()

    def after_fork_in_child(self) -> None:
        """Reset threads, locks and waiters of the parent; keep the wakeup count."""
        count = self.work.count
        self.work, self.job_wakeups = Wakeup(), JobWakeups()
        self.work.count = count
        # After a fork inside a transaction, SQLite in the child assumes locks that it does not
        # hold. Refuse to use the store instead of risking corruption or a permanent lock.
        self._broken_by_fork = self._broken_by_fork or not self._fork_clean
        self._reset()


@contextlib.contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # after a disk error, SQLite has ended it already
            connection.execute("ROLLBACK")


def _register_fork_hooks(engine: SqliteEngine) -> None:
    """Register fork hooks without keeping the engine alive."""
    reference = weakref.ref(engine)

    def call(hook: str) -> None:
        engine = reference()
        if engine is not None:
            getattr(engine, hook)()

    os.register_at_fork(
        before=lambda: call("before_fork"),
        after_in_parent=lambda: call("after_fork_in_parent"),
        after_in_child=lambda: call("after_fork_in_child"),
    )
