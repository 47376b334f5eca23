"""Claims jobs, and hands them to the slots as these come free.

Waits for: room (free slots, or few jobs claimed ahead), then for news of work or the poll interval.
Guarantees: a queue never runs more jobs than it has slots; it claims as many as are free, and ahead
of them what its slots would end within `AHEAD` at the pace just seen, so that quick jobs come in
large batches and slow ones one by one. What waits here for longer than `PATIENCE`, because its
neighbours turned out slow, is given back for others to run. A job that was running when a worker
died never waits here: if this one dies, too, it would have counted for nothing. A claim whose
answer was lost is repeated with its token. Stops: when told, whether the store answers or not; what
was claimed ahead is given back at once. A claim that is not answered yet is heard out beside the
rest of the stop, if need be by a question that takes nothing; what it took is given back. Once the
stop has no patience left, it is cut off, and what it took is left to its leases. A crash leaves
leases to run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from windlass.core.errors import StoreError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE
from windlass.core.query.job_query import Query
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.attempt import Attempt
from windlass.worker.batch.collector import Call, Gatherer
from windlass.worker.config import WorkerConfig
from windlass.worker.context import RETRY_STORE
from windlass.worker.loops.outage_log import Trouble
from windlass.worker.loops.queue_slots import Lane

log = logging.getLogger("windlass.worker")
PATIENCE = 1.0  # seconds


class Fetcher:
    """`claimed` takes what a claim answered; `begin` starts one of them; `give_back` releases.

    `busy` is set while anything claimed is still to be settled.
    """

    def __init__(
        self,
        store: Store,
        config: WorkerConfig,
        *,
        claimed: Callable[[list[JobRow], float], list[Attempt]],
        begin: Callable[[Attempt], None],
        give_back: Callable[[Attempt], None],
        busy: asyncio.Event,
        tasks: Registry,
    ) -> None:
        self._store = store
        self._config = config
        self._claimed = claimed
        self._begin = begin
        self._give_back = give_back
        self._busy = busy
        self._tasks = tasks
        self._gatherer = Gatherer(tasks, self._ripe, patient=config.company)
        self._lanes = {queue: Lane(queue, slots) for queue, slots in config.queues.items()}
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._trouble = Trouble("claiming")
        self.last_claim: float | None = None  # by the loop's clock
        self._asked: float | None = None  # when a claim was first made that is not answered yet
        self._asking: asyncio.Future[list[JobRow]] | None = None  # its call, while under way
        self._hearing: asyncio.Task[None] | None = None
        self._waiting_here = 0  # jobs claimed ahead, in all lanes
        self.lull = asyncio.Event()  # set while nothing claimed waits for a slot
        self.lull.set()

    def stop(self) -> None:
        self._stopping.set()
        self._room.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def free(self) -> int:
        """How many slots are empty."""
        return sum(lane.free for lane in self._lanes.values())

    async def run(self) -> None:
        """Until told to stop, or (in a burst) until nothing is left to do."""
        token = uuid7()
        self._told = asyncio.create_task(self._stopping.wait())
        tidying = asyncio.create_task(self._tidy())
        try:
            while not self._stopping.is_set():
                wanted = [(lane.queue, n) for lane in self._lanes.values() if (n := lane.wants)]
                if not wanted:
                    self._room.clear()
                    await self._room.wait()
                    continue
                # The token stays until an answer came: what a lost answer claimed is not lost. Its
                # leases may have begun with the first of these calls.
                if self._asked is None:
                    token, self._asked = uuid7(), asyncio.get_running_loop().time()
                try:
                    more = await self._claim(token, wanted)
                    if not more and not self._stopping.is_set():
                        if self._config.burst and await self._done():
                            return
                        await self._wait([queue for queue, _ in wanted])
                except StoreError as error:
                    self._asking = None
                    self._trouble.met(error)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), RETRY_STORE)
        finally:
            tidying.cancel()
            self._told.cancel()
            self._trouble.done()
            self._drop_all()
            if self._asked is not None:
                self._hearing = asyncio.create_task(self._hear_out(token))

    async def _claim(self, token: UUID, wanted: list[tuple[str, int]]) -> bool:
        """Whether there may be more to claim: the line of a queue gave all that was asked for."""
        config = self._config
        now = asyncio.get_running_loop().time()
        for queue, _ in wanted:
            self._lanes[queue].pace(now)
        claim = Claim(token=token, worker=config.name, queues=wanted, lease=config.lease)
        # Cut off, it goes on: what it brings is ours, and is given back like all that waits here.
        self._asking = asyncio.ensure_future(self._store.claim(claim))
        if not await self._ended(self._asking):
            return False
        jobs = self._asking.result()
        self.last_claim = asyncio.get_running_loop().time()
        self._trouble.over()
        limits = dict(wanted)
        for attempt in self._take(jobs):
            queue = attempt.job.queue
            if queue in limits:  # a repeat answers what was asked for before
                limits[queue] -= 1
        if not self._stopping.is_set():  # else they are given back as they are
            for queue, _ in wanted:
                lane = self._lanes[queue]
                self._fill(lane)
                if lane.careful:
                    self.drop(attempt for attempt in lane.ready if attempt.job.isolated)
                if self._gatherer.needed:
                    self._look_for_company(lane, more=limits[queue] <= 0)
        self._note_lull()
        return any(left <= 0 for left in limits.values())

    async def _ended(self, call: asyncio.Future[Any]) -> bool:
        """Wait for a call to the store to end; a stop does not wait for one."""
        either: set[asyncio.Future[Any]] = {call, self._told}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return call.done()

    async def heard_out(self) -> None:
        """Return when nothing that was claimed is unknown here, for as long as one has patience."""
        if self._hearing is not None:
            await asyncio.wait({self._hearing})

    def give_up(self) -> None:
        """What is not known by now is left to its leases."""
        for call in (self._hearing, self._asking):
            if call is not None:
                call.cancel()

    async def _hear_out(self, token: UUID) -> None:
        """Take what the last claim took, to give it back.

        If it cannot be said by the call under way, the claim is repeated, for a queue in which
        there is no job: a repeat answers what was taken, and this one can take nothing more.
        """
        nowhere = [(f"nothing-{token}", 1)]  # a claim for none need not be answered
        config = self._config
        claim = Claim(token=token, worker=config.name, queues=nowhere, lease=config.lease)
        while self._asked is not None:
            try:
                if self._asking is None:
                    self._asking = asyncio.ensure_future(self._store.claim(claim))
                self._take(await asyncio.shield(self._asking))
            except StoreError as error:
                self._asking = None
                self._trouble.met(error)
                await asyncio.sleep(RETRY_STORE)
            except Exception:
                log.exception("what the last claim took is left to its leases")
                return
        self._drop_all()

    def _take(self, jobs: list[JobRow]) -> list[Attempt]:
        assert self._asked is not None
        attempts = self._claimed(jobs, self._asked)
        self._asked = self._asking = None
        for lane in self._lanes.values():
            lane.careful = False
        gathering = self._gatherer.needed
        for attempt in attempts:
            lane = self._lanes[attempt.job.queue]
            if attempt.job.crash_count:
                lane.careful = True
            if not (gathering and self._gatherer.add(attempt)):
                lane.ready.append(attempt)
                self._waiting_here += 1
        if gathering:
            for lane in self._lanes.values():
                self._count(lane)
        return attempts

    def _fill(self, lane: Lane) -> None:
        if lane.filling:  # what ends as soon as it begins comes back here: the loop below goes on
            return
        lane.filling = True
        try:
            while lane.free > 0 and lane.ready:
                lane.free -= 1
                self._waiting_here -= 1
                attempt = lane.ready.popleft()
                if attempt.call is None:
                    self._begin(attempt)
                    continue
                self._gatherer.begun(attempt.call)
                self._count(lane)
                for one in attempt.call.attempts:
                    self._begin(one)
        finally:
            lane.filling = False

    def freed(self, queue: str, jobs: int = 1) -> None:
        """A job of this queue, or a call with so many, no longer needs its slot."""
        lane = self._lanes[queue]
        lane.free += 1
        lane.ended += jobs
        if lane.ready and not self._stopping.is_set():
            self._fill(lane)
            if not self._waiting_here:
                self.lull.set()
        if not self._room.is_set() and lane.wants:
            self._room.set()

    def nudge(self) -> None:
        """Everything is settled: a burst may be over."""
        self._room.set()

    def _note_lull(self) -> None:
        if self._waiting_here:
            self.lull.clear()
        else:
            self.lull.set()

    async def _wait(self, queues: list[str]) -> None:
        """For news of work, for room in a queue that had none, or to be stopped."""
        self._room.clear()
        others = [lane for lane in self._lanes.values() if lane.queue not in queues]
        if any(lane.wants for lane in others):
            return  # a slot came free while the claim was under way
        look = self._config.burst or others
        either = {
            asyncio.ensure_future(self._store.wait(queues, self._config.poll)),
            asyncio.ensure_future((self._room if look else self._stopping).wait()),
        }
        try:
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in either:
                waiting.cancel()
            await asyncio.wait(either)
        for ended in done:
            ended.result()

    # -- batches

    def _ripe(self, call: Call) -> None:
        """It waits for company no more, only for a slot; until then it may still grow."""
        first = call.attempts[0]
        first.claimed = asyncio.get_running_loop().time()
        lane = self._lanes[first.job.queue]
        lane.ready.append(first)
        self._waiting_here += 1
        self._count(lane)
        if not self._stopping.is_set():
            self._fill(lane)
            self._note_lull()
            if lane.wants:
                self._room.set()

    def _count(self, lane: Lane) -> None:
        lane.company = self._gatherer.company(lane.queue)
        calls = [attempt.call for attempt in lane.ready if attempt.call is not None]
        lane.beside = sum(len(call.attempts) - 1 for call in calls)

    def _look_for_company(self, lane: Lane, *, more: bool) -> None:
        """Begin what has no reason to wait; jobs of other tasks that came along go back."""
        alone = [attempt for attempt in lane.ready if attempt.call is None]
        surplus = len(alone) - lane.target
        if lane.company and surplus > 0:
            self._gatherer.despair(lane.queue)
            self.drop(alone[-surplus:])
        self._count(lane)
        self._gatherer.looked(lane.queue, more=more and bool(lane.company and lane.wants))

    # -- what was claimed and cannot be run

    async def _tidy(self) -> None:
        """Give back what waited too long, oldest first."""
        while True:
            await self._busy.wait()
            await asyncio.sleep(PATIENCE / 2)
            before = asyncio.get_running_loop().time() - PATIENCE
            for lane in self._lanes.values():
                late = [attempt for attempt in lane.ready if attempt.claimed < before]
                if late:
                    lane.target = 0
                    self.drop(late)

    def drop(self, attempts: Iterable[Attempt]) -> None:
        for attempt in list(attempts):
            lane = self._lanes[attempt.job.queue]
            lane.ready.remove(attempt)
            self._waiting_here -= 1
            if attempt.call is None:
                self._give_back(attempt)
                continue
            self._gatherer.begun(attempt.call)
            self._count(lane)
            for one in attempt.call.attempts:
                self._give_back(one)
        self._note_lull()

    def _drop_all(self) -> None:
        self.drop(attempt for lane in self._lanes.values() for attempt in lane.ready)
        for attempt in self._gatherer.give_up():
            self._give_back(attempt)

    # -- a burst

    async def _done(self) -> bool:
        """Whether nothing runs, and no job of our queues can become claimable by nobody's doing.

        One that runs elsewhere may: its worker may be dead. One whose task is unknown here waits
        for another worker.
        """
        if self._busy.is_set():
            return False
        look = asyncio.ensure_future(self._waiting())
        try:
            return await self._ended(look) and not look.result()
        finally:
            look.cancel()

    async def _waiting(self) -> bool:
        stats = await self._store.stats()
        ours = {
            queue
            for queue in self._lanes
            if queue in stats and not stats[queue].paused and any(stats[queue].counts.values())
        }
        cursor: str | None = None
        while ours:
            query = Query(states=ACTIVE, queues=frozenset(ours), cursor=cursor)
            page = await self._store.find(query)
            if any(not row.held and self._tasks.get(row.task) for row in page.rows):
                return True
            if (cursor := page.cursor) is None:
                break
        return False
