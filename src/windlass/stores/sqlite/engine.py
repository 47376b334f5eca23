"""One file, one process: a writer thread with group commit, and readers apart.

The writer waits for work, takes all that has gathered, runs it in one transaction and answers after
the commit: concurrent calls share one fsync. If any of them raises, the transaction is rolled back
and each runs alone, so that one bad call fails by itself. A crash leaves whole transactions only.

Readers have connections of their own; each read is one snapshot. All handles of a process on one
file share one engine. Before a fork every connection is closed, and reopened when next needed:
SQLite's locks belong to a process, and a child that inherited them would believe in locks it does
not hold.
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
from windlass.stores.sqlite.connection import (
    SqliteConfig,
    checkpoint,
    connect,
    let_go,
    migrate,
)
from windlass.stores.sqlite.errors import translate
from windlass.stores.sqlite.write_queue import Call, deliver, run_together
from windlass.stores.sqlite.writes.transaction import Tx
from windlass.stores.wakeup import Bulletin, Signal

S = TypeVar("S")
T = TypeVar("T")
_Reader: TypeAlias = tuple[Lock, list[apsw.Connection]]  # one per thread; open while in use
MAX_JOBS = 500  # in one transaction: beyond it, whoever was first need not wait for the others
FORK_SECONDS = 10.0


class Engine:
    def __init__(self, config: SqliteConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.work = Signal()
        self.news = Bulletin()
        self.migrated: list[str] = []  # by this process, and not yet told
        self._users = 0
        self._lost_to_fork = False
        self._clean = True
        self._start_afresh()
        _forget_on_fork(self)

    def _start_afresh(self) -> None:
        self._lock = Lock()  # guards starting and stopping
        self._gate = Lock()  # held while the writer's connection is in use
        self._queue: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._connection: apsw.Connection | None = None
        self._version: int | None = None
        self._wal_pages = 0
        self._pool: ThreadPoolExecutor | None = None
        self._mine = local()
        self._stopped: list[Lock] = []
        self._readers: list[_Reader] = []

    # -- handles

    def open(self) -> None:
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """The last handle closes the file; what was called before is finished first."""
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
        for _, held in self._readers:
            for connection in held:
                let_go(connection)
            held.clear()
        if self._connection is not None:
            let_go(self._connection)
            self._connection = None

    # -- writing

    async def write(self, run: Callable[[Tx], T], size: int = 1) -> T:
        call: Call[T] = Call(run, size=size, loop=asyncio.get_running_loop())
        self._submit(call)
        assert isinstance(call.future, asyncio.Future)
        return await call.future

    async def write_many(
        self, run: Callable[[Tx, Sequence[S]], list[T]], items: Sequence[S]
    ) -> list[T]:
        """One answer per item; concurrent calls are merged into one."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        call: Call[list[T]] = Call(run, items=items, size=len(items), loop=loop)
        self._submit(call)
        assert isinstance(call.future, asyncio.Future)
        return await call.future

    def write_blocking(self, run: Callable[[Tx], T], *, alone: bool = False) -> Future[T]:
        call: Call[T] = Call(run, alone=alone)
        self._submit(call)
        assert isinstance(call.future, Future)
        return call.future

    def _submit(self, call: Call[Any]) -> None:
        with self._lock:  # a call is either before the end of the queue or refused
            self._check_usable()
            if self._thread is None:
                thread = Thread(target=self._loop, name="windlass-sqlite", daemon=True)
                thread.start()
                self._thread = thread
            self._queue.put(call)

    def _check_usable(self) -> None:
        if self._users == 0:
            raise StoreUnavailableError(f"the store on {self.config.path} is closed")
        if self._lost_to_fork:
            raise StoreUnavailableError(
                f"this process was forked while a transaction on {self.config.path} was open, and "
                "SQLite cannot be used here any more; fork outside of transactions, or spawn"
            )

    def _loop(self) -> None:
        queue = self._queue
        held: Call[Any] | None = None
        while True:
            first = held or queue.get()
            held = None
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
                if call.alone or size > MAX_JOBS:
                    held = call
                    break
                group.append(call)
            with self._gate:
                try:
                    self._commit_group(group)
                except BaseException as error:  # noqa: BLE001 - nobody is left waiting for ever
                    for call in group:
                        call.error = call.error or error
                    deliver(group)
                if self._connection is not None:
                    checkpoint(self._connection, self._wal_pages, self.config)

    def _commit_group(self, group: Sequence[Call[Any]]) -> None:
        tx: Tx | None = None
        try:
            tx = self._transaction(group)
        except BaseException as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            if len(group) > 1 and not isinstance(error, StoreError):
                for call in group:
                    self._commit_group([call])
                return
            for call in group:
                call.error = error
        if tx is not None:
            if tx.work or tx.elsewhere:
                self.work.notify()
            if tx.elsewhere or (tx.touched is None and self.news.followed):
                self.news.tell_all()  # also for whoever began to follow while this was written
            elif tx.touched:
                self.news.tell(tx.touched)
        deliver(group)  # last: the loop that wakes then finds the interpreter free

    def _transaction(self, group: Sequence[Call[Any]]) -> Tx:
        """Run the group in one transaction; raises StoreError when the file is at fault."""
        try:
            connection = self._writer()
            tx = Tx(connection, self.clock.now, followed=self.news.followed)
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise translate(error, self.config.path) from error
        try:
            run_together(group, tx)
            tx.finish()
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection)
            if isinstance(error, apsw.Error):
                if len(group) > 1:
                    raise  # alone, it may fit; or the one at fault fails by itself
                raise translate(error, self.config.path) from error
            raise
        return tx

    def _roll_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error:
                # A connection in doubt is not used again; the next call opens a new one.
                self._connection = None
                let_go(connection)

    def _writer(self) -> apsw.Connection:
        if self._connection is None:
            connection = connect(self.config)
            try:
                done = migrate(connection, self.config.path, self.clock.now())
            except BaseException:
                let_go(connection)
                raise
            self.migrated += done
            connection.set_wal_hook(self._note_wal)  # in place of SQLite's own checkpoints
            self._connection = connection
            if self._version is not None:
                self._version = -1  # another connection counts anew: look once too often
        return self._connection

    def _note_wal(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def look_elsewhere(self, tx: Tx) -> bool:
        """Whether another connection committed since this was last asked; if so, all are told."""
        version: int = tx.connection.pragma("data_version")
        before, self._version = self._version, version
        tx.elsewhere = tx.elsewhere or (before is not None and version != before)
        return tx.elsewhere

    # -- reading

    async def read(self, run: Callable[[apsw.Connection], T]) -> T:
        """Run in one snapshot, on a reader's thread."""
        if self.config.exclusive:
            return await self.write(lambda tx: run(tx.connection))
        if self._connection is None:
            await self.write(lambda _: None)  # the file and its schema exist from here on
        with self._lock:
            self._check_usable()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.config.readers, "windlass-sqlite-read")
            reading = asyncio.get_running_loop().run_in_executor(self._pool, self._read, run)
        return await reading

    def _read(self, run: Callable[[apsw.Connection], T]) -> T:
        mine: _Reader | None = getattr(self._mine, "reader", None)
        if mine is None:
            mine = self._mine.reader = (Lock(), [])
            self._readers.append(mine)
        lock, held = mine
        with lock:
            try:
                if not held:
                    held.append(connect(self.config))
                with _snapshot(held[0]):
                    return run(held[0])
            except apsw.Error as error:
                raise translate(error, self.config.path) from error

    # -- forks

    def before_fork(self) -> None:
        locks = [self._lock, self._gate, *(lock for lock, _ in self._readers)]
        # A transaction that is open in this very thread cannot be waited for; then nothing closes.
        self._stopped = [lock for lock in locks if lock.acquire(timeout=FORK_SECONDS)]
        self._clean = len(self._stopped) == len(locks)
        if self._clean:
            self._close_connections()

    def after_fork_in_parent(self) -> None:
        while self._stopped:
            self._stopped.pop().release()

    def after_fork_in_child(self) -> None:
        """The parent's threads, locks and waiters are not here; the counts of news are."""
        count = self.work.count
        self.work, self.news = Signal(), Bulletin()
        self.work.count = count
        # Whoever forks inside a transaction leaves its child SQLite's belief in locks that it does
        # not hold: better no store than one that is always locked, or worse.
        self._lost_to_fork = self._lost_to_fork or not self._clean
        self._start_afresh()


@contextlib.contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # SQLite has ended it already if the disk failed
            connection.execute("ROLLBACK")


def _forget_on_fork(engine: Engine) -> None:
    """Register for forks without keeping the engine alive."""
    known = weakref.ref(engine)

    def tell(what: str) -> None:
        living = known()
        if living is not None:
            getattr(living, what)()

    os.register_at_fork(
        before=lambda: tell("before_fork"),
        after_in_parent=lambda: tell("after_fork_in_parent"),
        after_in_child=lambda: tell("after_fork_in_child"),
    )
