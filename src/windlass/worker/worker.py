"""A worker: claims jobs, runs them, settles how they ended.

Each loop has a file of its own; here they are joined. The fetcher claims, an attempt is a task of
the event loop, the settler stores its outcome, the keeper keeps its lease until then. `stop` ends
the claiming; what still runs after the grace period is released, uncounted; what does not let go
even then is left to its lease. A crash leaves leases to run out: the jobs are then claimed by
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from windlass.core.codec import Codec
from windlass.core.decisions.outcome import Aborted, Failed, Outcome, Released
from windlass.core.errors import StoreError
from windlass.core.job.lease import DEFAULT_LEASE, Lease
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.worker_presence import Readiness, deafness, store_problem
from windlass.process.pool import through
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.attempt import Attempt, Why
from windlass.worker.child.executor import Children
from windlass.worker.config import WorkerConfig
from windlass.worker.context import Context
from windlass.worker.executor import TaskRunner, describe
from windlass.worker.hooks import Kit, living
from windlass.worker.loops.cancel_watcher import Follower
from windlass.worker.loops.cleaner import Cleaner
from windlass.worker.loops.event_writer import Speaker
from windlass.worker.loops.fetcher import Fetcher
from windlass.worker.loops.keeper import Keeper
from windlass.worker.loops.outage_log import Trouble
from windlass.worker.loops.presence import Registrar
from windlass.worker.loops.settler import Settler
from windlass.worker.loops.sweeper import Sweeper
from windlass.worker.loops.ticker import Ticker

log = logging.getLogger("windlass.worker")
NAMED = 10  # jobs in a line of the log
CLEAN_EVERY = 5  # sweeps
READY = 5.0  # seconds
AGAIN = 0.5  # seconds after which to try again what has to come first


class Worker:
    def __init__(
        self,
        store: Store,
        tasks: Registry,
        codec: Codec,
        config: WorkerConfig,
        kit: Kit | None = None,
        *,
        keeper: Callable[..., Keeper] = Keeper,
    ) -> None:
        self.config = config
        self._make_keeper = keeper
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._kit = kit or Kit()
        self._cleaner = Cleaner(store, self._kit.workspaces)
        self._state: Any = None
        # By lease, for one job may be here twice: a thread that lost it, and the next attempt.
        self._attempts: dict[Lease, Attempt] = {}
        self._settled = asyncio.Event()  # set while there are none
        self._settled.set()
        self._busy = asyncio.Event()  # set while there are some
        self._hurry = asyncio.Event()  # set when a stop is to end within the grace
        self._broken: BaseException | None = None
        self._fetcher = Fetcher(
            store,
            config,
            claimed=self._claimed,
            begin=self._begin,
            give_back=self._give_back,
            busy=self._busy,
            tasks=tasks,
        )
        self._children = Children(
            limit=sum(config.queues.values()),
            app=self._kit.app,
            lifespan=self._kit.lifespan is not None,
            # Shorter than the patience of a stop: what had to be killed is given back in time.
            grace=max(config.release / 2, config.release - 2),
        )
        self._settler = Settler(store, tasks, codec, self._cleaner, self._done)
        self._registrar = Registrar(
            store,
            tasks,
            config,
            running=lambda: self.running,
            last_claim=lambda: self._fetcher.last_claim,
            free=lambda: self._fetcher.free,
            stopping=lambda: self._fetcher.stopping,
        )

    @property
    def settled(self) -> Mapping[State, int]:
        """How many attempts this worker has ended, by what became of their jobs."""
        return self._settler.settled

    @property
    def running(self) -> int:
        """How many attempts it holds."""
        return len(self._attempts)

    async def ready(self, timeout: float = READY) -> Readiness:
        """Whether it takes jobs: the store answers, and its claims are answered.

        For `/readyz` of whatever runs it. Call it on the worker's own event loop.
        """
        try:
            async with asyncio.timeout(timeout):
                seen = await self._registrar.look()
        except (StoreError, TimeoutError) as error:
            return Readiness((store_problem(error, timeout),))
        if seen.stopping:
            return Readiness((f"worker {seen.name} is stopping: it takes no more jobs",))
        return Readiness(deafness([seen]))

    def stop(self, *, patient: bool = False) -> None:
        """Claim no more; end when the running tasks have, or after the grace period.

        With `patient` there is no such period, unless another stop begins it.
        """
        if not patient:
            self._hurry.set()
        self._fetcher.stop()

    async def run(self) -> None:
        try:
            with self._kit.on_loop(asyncio.get_running_loop()):
                async with living(self._kit.lifespan) as self._state:
                    await self._work()
        finally:
            await self._store.close()

    async def _work(self) -> None:
        await self._declare()
        loop = asyncio.get_running_loop()
        self._keeper = self._make_keeper(
            self._store.twin(),
            on_lost=lambda lease: loop.call_soon_threadsafe(self._lost, lease),
            on_cancel=lambda lease: loop.call_soon_threadsafe(self._end, lease, Why.CANCEL),
        )
        self._keeper.start()
        threads = ThreadPoolExecutor(sum(self.config.queues.values()), "windlass-task")
        self._runner = TaskRunner(
            self._tasks,
            self._codec,
            threads,
            self._store,
            kit=self._kit,
            children=self._children,
            isolate=self.config.isolate,
        )
        beside = [loop.create_task(work) for work in self._beside()]
        for work in beside:
            work.add_done_callback(self._ended_beside)
        try:
            await self._fetcher.run()
            await self._drain()
        finally:
            # Also when this is cancelled, and cancelled again: nothing runs on without its lease.
            await through(self._wind_up(beside, threads))
        if self._broken is not None:
            raise self._broken

    async def _declare(self) -> None:
        """Store the limits of the app's code, before it makes jobs: by a tick, or at a settle."""
        if self._kit.declare is None:
            return
        trouble = Trouble("storing limits")
        while not self._fetcher.stopping:
            try:
                await self._kit.declare(self._store)
            except StoreError as error:
                trouble.met(error)
                await asyncio.sleep(AGAIN)
            else:
                trouble.over()
                trouble.done()
                return

    def _ended_beside(self, work: asyncio.Task[None]) -> None:
        """A worker that claims and cannot settle, or is never swept, is worse than none."""
        if not work.cancelled() and (error := work.exception()) is not None:
            log.error("a loop of this worker broke; it stops", exc_info=error)
            self._broken = error
            self.stop()

    async def _wind_up(self, beside: list[asyncio.Task[None]], threads: ThreadPoolExecutor) -> None:
        """Each part has its own bound, so that the whole has one."""
        patience = self.config.release
        await self._release()
        await self._settler.finish(patience)
        await self._children.aclose()
        self._fetcher.give_up()
        for work in beside:
            work.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        threads.shutdown(wait=False, cancel_futures=True)
        await self._keeper.stop(patience)

    def _beside(self) -> list[Coroutine[Any, Any, None]]:
        """The loops that go on beside the claiming, on the same event loop."""
        config = self.config
        sweeper = Sweeper(self._store, config.sweep, config.retention, self._cleaner)
        follower = Follower(
            self._store,
            config.follow,
            running=lambda: self._attempts,
            on_cancel=lambda lease: self._end(lease, Why.CANCEL),
            busy=self._busy,
        )
        speaker = Speaker(
            self._attempts.values, on_lost=lambda it: self._lost(it.lease), busy=self._busy
        )
        settling = self._settler.run(self._fetcher.lull)
        cleaning = self._cleaner.run(CLEAN_EVERY * config.sweep)
        kit = self._kit
        ticker = Ticker(self._store, declared=kit.declared, prepare=kit.middleware.enqueue)
        ticking = [ticker.run()] if config.schedules else []
        others = (sweeper, follower, speaker, self._registrar)
        return [settling, cleaning, *ticking, *(loop.run() for loop in others)]

    # -- an attempt, from claim to settle

    def _claimed(self, jobs: list[JobRow], asked: float) -> list[Attempt]:
        """Hold the leases of what a claim answered; `asked` is by the loop's clock."""
        ago = asyncio.get_running_loop().time() - asked
        given = self.config.lease
        attempts = [Attempt(job, job.lease, asked + ago) for job in jobs]
        by_length: dict[float, dict[Lease, Attempt]] = {}
        for attempt in attempts:
            length = given or attempt.job.lease_seconds or DEFAULT_LEASE
            by_length.setdefault(length, {})[attempt.lease] = attempt
        for length, group in by_length.items():
            self._keeper.hold_all(group, length, ago)
            self._attempts |= group
        if attempts:
            self._settled.clear()
            self._busy.set()
        return attempts

    def _begin(self, attempt: Attempt) -> None:
        job = attempt.job
        spec = self._tasks.get(job.task)
        loop = asyncio.get_running_loop()
        attempt.context = Context(
            job,
            self._store,
            self._codec,
            loop,
            (spec.options.stages if spec else None) or self._kit.stages,
            kit=self._kit,
            state=self._state,
            spec=spec,
        )
        if attempt.why is not None:  # it ended before it began
            self._finish(attempt, None)
            return
        attempt.task = loop.create_task(self._run(attempt, attempt.context))

    async def _run(self, attempt: Attempt, context: Context) -> None:
        outcome: Outcome | None = None
        attempt.started = True
        try:
            if attempt.why is not None:
                return  # it was told to end in the moment between
            outcome = await self._runner.run(attempt.job, context, attempt.call)
        except asyncio.CancelledError:
            pass  # it was told to stop, or something that it awaited was cancelled under it
        except BaseException as error:
            log.exception("job %s could not be run", attempt.job.id)
            outcome = Failed(failure=describe(error, self._codec))
            if not isinstance(error, Exception):
                raise
        finally:
            self._finish(attempt, outcome)

    def _finish(self, attempt: Attempt, ended: Outcome | None) -> None:
        """Its slot is free; its outcome is on its way. The lease is kept until it is stored."""
        if attempt.lost:
            log.warning("job %s was lost to another worker; its result is dropped", attempt.job.id)
            self._done([attempt])
        else:
            self._settler.settle(attempt, self._outcome(attempt, ended))
        call = attempt.call
        if call is None:
            self._fetcher.freed(attempt.job.queue)
        elif call.over(attempt):
            self._fetcher.freed(attempt.job.queue, len(call.attempts))

    def _outcome(self, attempt: Attempt, ended: Outcome | None) -> Outcome:
        if attempt.why is None and ended is not None:
            return ended
        if attempt.why is Why.RELEASE and (ended is None or isinstance(ended, Failed)):
            return Released()  # whatever it made of being stopped, it is not the task's failure
        if ended is not None:
            return ended
        if attempt.why is Why.CANCEL:
            return Aborted(reason="canceled")
        # Nobody asked for it: something that the task awaited was cancelled under it.
        error = asyncio.CancelledError("the task was cancelled from within")
        step = attempt.context.current_step if attempt.context else None
        return Failed(failure=describe(error, self._codec, step=step))

    def _give_back(self, attempt: Attempt) -> None:
        """It was claimed and never begun."""
        if attempt.lost:
            self._done([attempt])
        else:
            aborted = attempt.why is Why.CANCEL
            self._settler.settle(attempt, Aborted(reason="canceled") if aborted else Released())

    def _done(self, attempts: Sequence[Attempt]) -> None:
        """Nothing more is to be said for them."""
        leases = [attempt.lease for attempt in attempts]
        self._keeper.let_go(*leases)
        for lease in leases:
            self._attempts.pop(lease, None)
        if not self._attempts:
            self._settled.set()
            self._busy.clear()
            self._fetcher.nudge()

    def _end(self, lease: Lease, why: Why) -> None:
        attempt = self._attempts.get(lease)
        if attempt is not None:
            attempt.end(why)

    def _lost(self, lease: Lease) -> None:
        attempt = self._attempts.get(lease)
        context = attempt.context if attempt is not None else None
        if attempt is None or context is None or not context.settling:
            self._end(lease, Why.LOST)
        elif attempt.doubt is None:
            attempt.doubt = asyncio.create_task(self._ask_whether_lost(attempt))

    async def _ask_whether_lost(self, attempt: Attempt) -> None:
        """A success that its task stored by itself ends the lease, too: then it may go on."""
        with contextlib.suppress(StoreError):
            [row] = await self._store.get([attempt.job.id])
            if row is not None and row.state is State.SUCCEEDED and row.lease == attempt.lease:
                return
        attempt.end(Why.LOST)

    # -- the end

    async def _drain(self) -> None:
        waiting = [asyncio.ensure_future(it.wait()) for it in (self._settled, self._hurry)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for either in waiting:
                either.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), self.config.grace)

    async def _release(self) -> None:
        for attempt in list(self._attempts.values()):
            attempt.end(Why.RELEASE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.release):
                await self._fetcher.heard_out()  # which may bring more to be given back
                await self._settled.wait()
        if self._attempts:
            ids = [str(attempt.job.id) for attempt in self._attempts.values()]
            named = ", ".join(ids[:NAMED]) + (f" and {len(ids) - NAMED} more" * (len(ids) > NAMED))
            log.error("these jobs are left to their leases, for they did not let go: %s", named)
