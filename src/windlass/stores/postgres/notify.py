"""Wake-ups between processes: NOTIFY outside of job transactions, LISTEN with a probe.

A notification only shortens a wait; processes also poll. NOTIFY takes a lock that serializes
commits. So it is never sent in a transaction that writes jobs, and a handle sends at most one per
`NOTIFY_INTERVAL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID, uuid4

from windlass.core.errors import StoreError
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection, connect
from windlass.stores.postgres.errors import DRIVER_ERRORS
from windlass.stores.wakeup import JobWakeups, Wakeup

log = logging.getLogger("windlass.stores")
CHANNEL = "windlass"
NOTIFY_INTERVAL = 0.01  # seconds between two messages of one handle
ANY_JOB_INTERVAL = 0.05  # the same after a message for any job, unless jobs became claimable
MAX_NAMED_JOBS = 200  # job ids in one message; with more, the message means any job
WAKE_ALL_DELAY = 0.25  # seconds before all event readers are woken
PROBE_INTERVAL = 10.0  # seconds between checks that messages arrive
PROBE_TIMEOUT = 5.0  # seconds that a probe message may take
_RECONNECT_DELAYS = (0.1, 0.5, 1.0, 2.0, 5.0)
_ANY_JOB = "*"


class NotifyHub:
    """Wake-ups shared by the handles of one process on one database."""

    def __init__(self) -> None:
        self.work = Wakeup()
        self.job_wakeups = JobWakeups()
        self.name = uuid4().hex[:12]
        self.warned = False  # whether the warning about missing notifications was logged
        self.pid = os.getpid()  # a forked child needs its own hub


class Notifier:
    """Wakes this process immediately, and others by NOTIFY soon after.

    Waits for: changes to announce. Guarantees: each change is sent, unless the server is down (then
    other processes poll). Stops: when all is sent. A crash loses wake-ups only.
    """

    def __init__(self, hub: NotifyHub, send: Callable[[str], Awaitable[None]]) -> None:
        self._hub = hub
        self._send = send
        self._work = False
        self._jobs: set[UUID] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()  # skips the intervals
        self._work_pending = asyncio.Event()  # jobs became claimable

    def notify(self, jobs: Iterable[UUID] = (), *, work: bool = False) -> None:
        ids = list(jobs)
        if work:
            self._hub.work.notify()
            self._work_pending.set()
        if self._hub.job_wakeups.subscribed:
            self._hub.job_wakeups.notify(ids)
        self._work = self._work or work
        if len(self._jobs) <= MAX_NAMED_JOBS:  # beyond that, the message means any job
            self._jobs.update(ids[: MAX_NAMED_JOBS + 1])
        if self._task is None and (work or ids):
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._work or self._jobs:
                message = self._message()
                with contextlib.suppress(StoreError):
                    await self._send(message)
                await _set_within(self._closing, NOTIFY_INTERVAL)
                if message.endswith(_ANY_JOB) and not self._closing.is_set():
                    await _set_within(self._work_pending, ANY_JOB_INTERVAL - NOTIFY_INTERVAL)
        finally:
            self._task = None

    def _message(self) -> str:
        self._work_pending.clear()
        work, self._work = self._work, False
        jobs, self._jobs = self._jobs, set()
        encoded = _encode_ids(jobs) if len(jobs) <= MAX_NAMED_JOBS else _ANY_JOB
        return f"{self._hub.name} {int(work)} {encoded}"

    async def finish(self) -> None:
        self._closing.set()
        self._work_pending.set()
        while self._task is not None:
            await asyncio.wait([self._task])


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _encode_ids(jobs: Iterable[UUID]) -> str:
    """Encode all ids together: one by one was visible in a profile when gates admit many jobs."""
    return urlsafe_b64encode(b"".join(job.bytes for job in jobs)).decode()


def _decode_ids(encoded: str) -> list[UUID] | None:
    """Return job ids; None for any job, and for messages of another version."""
    if encoded == _ANY_JOB:
        return None
    try:
        data = urlsafe_b64decode(encoded)
        return [UUID(bytes=data[start : start + 16]) for start in range(0, len(data), 16)]
    except ValueError:
        return None


class NotifyListener:
    """Receives the notifications of other processes, on a connection of its own.

    Waits for: messages, and the next probe. Guarantees: after a reconnect it wakes all waiters, for
    messages missed meanwhile (its creator checks for changes before the first connection). Stops:
    when closed. After a crash, or while the server is down, waiters poll.
    """

    def __init__(
        self, hub: NotifyHub, config: PostgresConfig, send: Callable[[str], Awaitable[None]]
    ) -> None:
        self._hub = hub
        self._config = config
        self._send = send
        self._broken = asyncio.Event()
        self._probe_received = asyncio.Event()
        self._probe = ""
        self._silent_connections = 0  # consecutive connections without any message
        self._wake_all_timer: asyncio.TimerHandle | None = None
        self.ready = asyncio.Event()  # the first connection attempt ended
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                connection = await connect(self._config)
                try:
                    await self._listen(connection)
                    failures = 0
                    if not await self._probe_until_lost():
                        self._count_silent()
                finally:
                    await _close_connection(connection)
            except (StoreError, *DRIVER_ERRORS):
                failures += 1
            self.ready.set()
            await asyncio.sleep(_RECONNECT_DELAYS[min(failures, len(_RECONNECT_DELAYS) - 1)])

    async def _listen(self, connection: Connection) -> None:
        self._broken.clear()
        connection.add_termination_listener(lambda *_: self._broken.set())
        await connection.add_listener(CHANNEL, self._receive)
        if self.ready.is_set():  # messages may have been missed since the last connection
            self._hub.work.notify()
            self._hub.job_wakeups.notify_all()
        self.ready.set()

    async def _probe_until_lost(self) -> bool:
        """Return true when the connection is lost, false when a probe message does not arrive."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_INTERVAL):
                    await self._broken.wait()
                return True
            self._probe_received.clear()
            self._probe = f"{self._hub.name} probe {uuid4().hex[:12]}"
            try:
                await self._send(self._probe)
            except StoreError:
                continue  # the server is down or busy: no conclusion about LISTEN
            try:
                async with asyncio.timeout(PROBE_TIMEOUT):
                    await self._probe_received.wait()
                self._silent_connections = 0
            except TimeoutError:
                return False

    def _count_silent(self) -> None:
        """Warn at the second silent connection: the first may have been dropped silently."""
        self._silent_connections += 1
        if self._silent_connections > 1 and not self._hub.warned:
            self._hub.warned = True
            log.warning(
                "%s: no NOTIFY messages arrive; polling for jobs instead. Behind a pooler "
                "(pgbouncer), set listen=host:port of the server, or listen=off, in the URL",
                self._config.where,
            )

    def _receive(self, _: object, __: int, ___: str, message: str) -> None:
        if message == self._probe:
            self._probe_received.set()
            return
        sender, _, rest = message.partition(" ")
        work, _, encoded = rest.partition(" ")
        if sender == self._hub.name or work not in {"0", "1"}:
            return
        if work == "1":
            self._hub.work.notify()
        jobs = _decode_ids(encoded)
        if jobs is None:
            self._wake_all_soon()
        else:
            self._hub.job_wakeups.notify(jobs)

    def _wake_all_soon(self) -> None:
        """Wake all event readers after a delay: under load, only a few times a second."""
        if self._wake_all_timer is None:
            self._wake_all_timer = asyncio.get_running_loop().call_later(
                WAKE_ALL_DELAY, self._wake_all
            )

    def _wake_all(self) -> None:
        self._wake_all_timer = None
        self._hub.job_wakeups.notify_all()

    async def close(self) -> None:
        if self._wake_all_timer is not None:
            self._wake_all_timer.cancel()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


async def _close_connection(connection: Connection) -> None:
    try:
        async with asyncio.timeout(1):
            await connection.close()
    except DRIVER_ERRORS:
        connection.terminate()
    except asyncio.CancelledError:
        connection.terminate()
        raise  # `close` waits for the end of the task
