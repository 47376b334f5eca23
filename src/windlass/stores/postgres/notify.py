"""Hints between processes: NOTIFY outside of job transactions, LISTEN with a probe.

A hint only ever shortens a wait; whoever hears nothing polls. NOTIFY takes a lock that puts commits
one behind the other, so it is never sent in a transaction that writes jobs, and at most once in
`APART` for each handle, whatever happened meanwhile.
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
from windlass.stores.postgres.connection import Connection, PostgresConfig, connect
from windlass.stores.postgres.errors import FOREIGN
from windlass.stores.wakeup import Bulletin, Signal

log = logging.getLogger("windlass.stores")
CHANNEL = "windlass"
APART = 0.01  # seconds between two messages of one handle
CROWD_APART = 0.05  # the same after one that could not name its jobs, unless there is work
MOST_JOBS = 200  # named in one message; beyond that, it is news of any job
ANY_APART = 0.25  # seconds between two tellings that any job may have news
PROBE = 10.0  # seconds between proofs that messages still arrive
ANSWER = 5.0  # and how long one may take
_RETRY = (0.1, 0.5, 1.0, 2.0, 5.0)
_ANY = "*"


class Hub:
    """What the handles of one process on one database tell each other at once."""

    def __init__(self) -> None:
        self.work = Signal()
        self.news = Bulletin()
        self.name = uuid4().hex[:12]
        self.told = False  # that nothing can be heard: once is enough
        self.pid = os.getpid()  # a forked child needs one of its own: it is another process


class Speaker:
    """Tells this process at once, and the others soon.

    Waits for: something to tell. Guarantees: what was told is sent, unless the server is away (then
    they poll). Stops: when all is sent. A crash loses hints only.
    """

    def __init__(self, hub: Hub, send: Callable[[str], Awaitable[None]]) -> None:
        self._hub = hub
        self._send = send
        self._work = False
        self._jobs: set[UUID] = set()
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # nobody has to be spared any more
        self._pressing = asyncio.Event()  # there is work to tell of

    def tell(self, jobs: Iterable[UUID] = (), *, work: bool = False) -> None:
        known = list(jobs)
        if work:
            self._hub.work.notify()
            self._pressing.set()
        if self._hub.news.followed:
            self._hub.news.tell(known)
        self._work = self._work or work
        if len(self._jobs) <= MOST_JOBS:  # else they are not named any more
            self._jobs.update(known[: MOST_JOBS + 1])
        if self._task is None and (work or known):
            self._task = asyncio.get_running_loop().create_task(self._speak())

    async def _speak(self) -> None:
        try:
            while self._work or self._jobs:
                message = self._message()
                with contextlib.suppress(StoreError):
                    await self._send(message)
                await _set_within(self._hurry, APART)
                if message.endswith(_ANY) and not self._hurry.is_set():
                    await _set_within(self._pressing, CROWD_APART - APART)
        finally:
            self._task = None

    def _message(self) -> str:
        self._pressing.clear()
        work, self._work = self._work, False
        jobs, self._jobs = self._jobs, set()
        named = _named(jobs) if len(jobs) <= MOST_JOBS else _ANY
        return f"{self._hub.name} {int(work)} {named}"

    async def finish(self) -> None:
        self._hurry.set()
        self._pressing.set()
        while self._task is not None:
            await asyncio.wait([self._task])


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _named(jobs: Iterable[UUID]) -> str:
    """All in one piece, not one by one: where many are let in, that was seen in a profile."""
    return urlsafe_b64encode(b"".join(job.bytes for job in jobs)).decode()


def _jobs(named: str) -> list[UUID] | None:
    """None: any of them; for so are names that only another version can read."""
    if named == _ANY:
        return None
    try:
        every = urlsafe_b64decode(named)
        return [UUID(bytes=every[start : start + 16]) for start in range(0, len(every), 16)]
    except ValueError:
        return None


class Listener:
    """Hears what other processes write, on a connection of its own.

    Waits for: messages, and the time to prove that they arrive. Guarantees: whoever waits is told
    of what came while nobody listened, once it listens again (what came before it was made, is for
    its maker to look at). Stops: when closed. A crash, or a server that is away, leaves polling.
    """

    def __init__(
        self, hub: Hub, config: PostgresConfig, send: Callable[[str], Awaitable[None]]
    ) -> None:
        self._hub = hub
        self._config = config
        self._send = send
        self._broken = asyncio.Event()
        self._heard = asyncio.Event()
        self._probe = ""
        self._deaf = 0  # connections, one after the other, through which no message came
        self._any: asyncio.TimerHandle | None = None
        self.ready = asyncio.Event()  # the first attempt to listen is over
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                connection = await connect(self._config)
                try:
                    await self._listen(connection)
                    failures = 0
                    if not await self._watch():
                        self._went_deaf()
                finally:
                    await _let_go(connection)
            except (StoreError, *FOREIGN):
                failures += 1
            self.ready.set()
            await asyncio.sleep(_RETRY[min(failures, len(_RETRY) - 1)])

    async def _listen(self, connection: Connection) -> None:
        self._broken.clear()
        connection.add_termination_listener(lambda *_: self._broken.set())
        await connection.add_listener(CHANNEL, self._hear)
        if self.ready.is_set():  # whatever came while nobody listened
            self._hub.work.notify()
            self._hub.news.tell_all()
        self.ready.set()

    async def _watch(self) -> bool:
        """Until the connection is lost (true), or a message of our own does not come back."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE):
                    await self._broken.wait()
                return True
            self._heard.clear()
            self._probe = f"{self._hub.name} probe {uuid4().hex[:12]}"
            try:
                await self._send(self._probe)
            except StoreError:
                continue  # the server is away or busy: that says nothing about what we hear
            try:
                async with asyncio.timeout(ANSWER):
                    await self._heard.wait()
                self._deaf = 0
            except TimeoutError:
                return False

    def _went_deaf(self) -> None:
        """One connection may have died without a word. If the next hears nothing, it is the way."""
        self._deaf += 1
        if self._deaf > 1 and not self._hub.told:
            self._hub.told = True
            log.warning(
                "%s: no NOTIFY comes through, so jobs are found by polling. Is it a pooler "
                "(pgbouncer)? Then put listen=host:port of the server, or listen=off, into the URL",
                self._config.where,
            )

    def _hear(self, _: object, __: int, ___: str, message: str) -> None:
        if message == self._probe:
            self._heard.set()
            return
        sender, _, rest = message.partition(" ")
        work, _, named = rest.partition(" ")
        if sender == self._hub.name or work not in {"0", "1"}:
            return
        if work == "1":
            self._hub.work.notify()
        jobs = _jobs(named)
        if jobs is None:
            self._tell_all_soon()
        else:
            self._hub.news.tell(jobs)

    def _tell_all_soon(self) -> None:
        """Under load there is always news of some job; followers then look a few times a second."""
        if self._any is None:
            self._any = asyncio.get_running_loop().call_later(ANY_APART, self._tell_all)

    def _tell_all(self) -> None:
        self._any = None
        self._hub.news.tell_all()

    async def close(self) -> None:
        if self._any is not None:
            self._any.cancel()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])


async def _let_go(connection: Connection) -> None:
    try:
        async with asyncio.timeout(1):
            await connection.close()
    except FOREIGN:
        connection.terminate()
    except asyncio.CancelledError:
        connection.terminate()
        raise  # whoever closes waits for the end
