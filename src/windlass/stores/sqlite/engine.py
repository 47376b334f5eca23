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
from itertools import groupby, islice
from queue import Empty, SimpleQueue
from threading import Lock, Thread, local
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

import apsw

from windlass.core.clock import Clock, Instant
from windlass.core.errors import StoreError, StoreUnavailableError
from windlass.stores.signal import Bulletin, Signal
from windlass.stores.sqlite.connection import (
    SqliteConfig,
    checkpoint,
    connect,
    let_go,
    migrate,
    single,
)
from windlass.stores.sqlite.errors import translate
from windlass.stores.sqlite.queries import SQL

S = TypeVar("S")
T = TypeVar("T")
_Reader: TypeAlias = tuple[Lock, list[apsw.Connection]]  # one per thread; open while in use
MAX_GROUP = 500  # calls in one transaction
FORK_SECONDS = 10.0


class Tx:
    """A write transaction, as the calls in it see it."""

    __slots__ = ("_serial", "_written", "connection", "elsewhere", "now", "touched", "work")

    def __init__(
        self, connection: apsw.Connection, now: Callable[[], Instant], *, followed: bool
    ) -> None:
        self.connection = connection
        self.now = now
        self.work = False  # something may have become claimable
        self.elsewhere = False  # another process was seen to have written
        self.touched: list[UUID] | None = [] if followed else None  # jobs that have news
        self._serial: int | None = None
        self._written = True

    def _last(self) -> int:
        if self._serial is None:
            self._serial = int(single(self.connection, SQL.last_serial))
        return self._serial

    def touch(self, job_id: UUID) -> None:
        if self.touched is not None:
            self.touched.append(job_id)

    def arrivals(self, count: int) -> int:
        """The first of `count` new numbers for jobs: their rows will show that they are taken."""
        first = self._last() + 1
        self._serial = first + count - 1
        return first

    def position(self) -> int:
        """A new number for a place in line, and a note that it is taken."""
        self._serial = self._last() + 1
        self._written = False
        return self._serial

    def remember(self) -> None:
        """Note what was given so far, because rows that show it are about to go."""
        self._last()
        self._written = False

    def finish(self) -> None:
        if not self._written:
            self.connection.execute(SQL.set_serial, (self._serial,))


class _Call(Generic[T]):
    """One piece of work for the writer, and who waits for it.

    With `items`, `run` is a function of many: neighbours of the same kind become one call of it.
    """

    __slots__ = ("alone", "error", "future", "items", "loop", "result", "run")

    def __init__(
        self,
        run: Callable[..., Any],
        *,
        items: Sequence[Any] | None = None,
        alone: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.run = run
        self.items = items
        self.alone = alone
        self.loop = loop
        self.future: asyncio.Future[T] | Future[T] = loop.create_future() if loop else Future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def deliver(self) -> None:
        future = self.future
        if future.done():
            return  # whoever waited has gone; the write stands all the same
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.result)  # type: ignore[arg-type]


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
        self._queue: SimpleQueue[_Call[Any] | None] = SimpleQueue()
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

    async def write(self, run: Callable[[Tx], T]) -> T:
        call: _Call[T] = _Call(run, loop=asyncio.get_running_loop())
        self._submit(call)
        assert isinstance(call.future, asyncio.Future)
        return await call.future

    async def write_many(
        self, run: Callable[[Tx, Sequence[S]], list[T]], items: Sequence[S]
    ) -> list[T]:
        """One answer per item; concurrent calls are merged into one."""
        if not items:
            return []
        call: _Call[list[T]] = _Call(run, items=items, loop=asyncio.get_running_loop())
        self._submit(call)
        assert isinstance(call.future, asyncio.Future)
        return await call.future

    def write_blocking(self, run: Callable[[Tx], T], *, alone: bool = False) -> Future[T]:
        call: _Call[T] = _Call(run, alone=alone)
        self._submit(call)
        assert isinstance(call.future, Future)
        return call.future

    def _submit(self, call: _Call[Any]) -> None:
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
        held: _Call[Any] | None = None
        while True:
            first = held or queue.get()
            held = None
            if first is None:
                return
            group = [first]
            while not first.alone and len(group) < MAX_GROUP:
                try:
                    call = queue.get_nowait()
                except Empty:
                    break
                if call is None:
                    queue.put(None)
                    break
                if call.alone:
                    held = call
                    break
                group.append(call)
            with self._gate:
                try:
                    self._commit_group(group)
                except BaseException as error:  # noqa: BLE001 - nobody is left waiting for ever
                    for call in group:
                        call.error = call.error or error
                    _deliver(group)
                if self._connection is not None:
                    checkpoint(self._connection, self._wal_pages, self.config)

    def _commit_group(self, group: Sequence[_Call[Any]]) -> None:
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
            if tx.elsewhere:
                self.news.tell_all()
            elif tx.touched:
                self.news.tell(tx.touched)
        _deliver(group)  # last: the loop that wakes then finds the interpreter free

    def _transaction(self, group: Sequence[_Call[Any]]) -> Tx:
        """Run the group in one transaction; raises StoreError when the file is at fault."""
        try:
            connection = self._writer()
            tx = Tx(connection, self.clock.now, followed=self.news.followed)
            connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise translate(error, self.config.path) from error
        try:
            _run(group, tx)
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


def _run(group: Sequence[_Call[Any]], tx: Tx) -> None:
    """In order; calls of many items that stand next to each other are made as one."""
    if len(group) == 1:
        [call] = group
        call.result = call.run(tx) if call.items is None else call.run(tx, call.items)
        return
    for run, together in groupby(group, key=lambda call: call.run):
        calls = list(together)
        if calls[0].items is None:
            for call in calls:
                call.result = run(tx)
        elif len(calls) == 1:
            calls[0].result = run(tx, calls[0].items)
        else:
            answers = iter(run(tx, [item for call in calls for item in call.items or ()]))
            for call in calls:
                call.result = list(islice(answers, len(call.items or ())))


@contextlib.contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # SQLite has ended it already if the disk failed
            connection.execute("ROLLBACK")


def _deliver(group: Sequence[_Call[Any]]) -> None:
    """Tell everyone who waits, waking each event loop once."""
    if len(group) == 1 and group[0].loop is not None:
        with contextlib.suppress(RuntimeError):
            group[0].loop.call_soon_threadsafe(group[0].deliver)
        return
    loops: dict[asyncio.AbstractEventLoop, list[_Call[Any]]] = {}
    for call in group:
        if call.loop is None:
            call.deliver()
        else:
            loops.setdefault(call.loop, []).append(call)
    for loop, calls in loops.items():
        with contextlib.suppress(RuntimeError):  # a loop that is closed waits for nothing
            loop.call_soon_threadsafe(_deliver_all, calls)


def _deliver_all(calls: Sequence[_Call[Any]]) -> None:
    for call in calls:
        call.deliver()


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
