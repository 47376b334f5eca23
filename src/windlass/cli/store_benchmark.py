"""Benchmark of a store: enqueues no-op jobs, runs them with a worker of this process, deletes them.

Waits for: the store, and the jobs of its own queue. Guarantees: changes no other job, and deletes
its jobs at the end, after an error and when cancelled. Stops: at the end, between two calls when
cancelled, or when no job has finished for `STALL_TIMEOUT`. A killed process leaves its jobs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from windlass.client import Client, check_accepted
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.errors import ConflictError, StoreError, StoreUnavailableError
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.core.size_limits import MAX_NAME, check_text
from windlass.options import NO_OPTIONS, new_job, task_options
from windlass.task_spec import Registry, TaskSpec
from windlass.worker import Worker, WorkerConfig

TASK = "windlass.benchmark"
BATCH = 1_000  # jobs in one call
MIN_SAMPLES, MAX_SAMPLES = 20, 200  # jobs for the start latency
POLL_INTERVAL = 0.005  # seconds
IDLE_PAUSE = 0.02  # seconds before each job for the start latency: the worker waits again
STALL_TIMEOUT = 30.0  # seconds
# Arguments: phase, jobs done, jobs of the phase.
ReportProgress: TypeAlias = Callable[[str, int, int], None]
CountSettled: TypeAlias = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Throughput:
    """`cpu` are the CPU seconds of this process, without those of a database server."""

    jobs: int
    seconds: float
    cpu: float

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_per_job(self) -> float:
        return self.cpu / self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """`latencies` are the seconds from before an enqueue to the start of the job."""

    single: Throughput
    batch: Throughput
    batch_size: int
    drain: Throughput
    latencies: Sequence[float]

    def percentile(self, percent: int) -> float:
        return statistics.quantiles(self.latencies, n=100, method="inclusive")[percent - 1]


class _Stopwatch:
    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def throughput(self, jobs: int) -> Throughput:
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        return Throughput(jobs, seconds, cpu)


class StoreBenchmark:
    """One run on a queue that nothing else uses: its worker would claim other jobs of the queue."""

    def __init__(
        self, client: Client, queue: str, *, jobs: int, concurrency: int, report: ReportProgress
    ) -> None:
        self._client = client
        self._queue = queue
        self._jobs = jobs
        self._concurrency = concurrency
        self._report = report
        self._spec = TaskSpec(TASK, self._run_job, task_options(queue=queue, max_retries=0))
        self._ids: list[UUID] = []  # every job that may be stored
        self._stopping = False
        self._first_start: _Stopwatch | None = None
        self._last_start = 0.0

    async def check(self) -> None:
        """Raise ConflictError if the queue has jobs or workers, or is paused. Writes nothing."""
        store, queue = self._client.store, self._queue
        check_text("queue", queue, MAX_NAME)
        stats = (await store.insights.stats()).get(queue)
        if stats is not None and stats.paused:
            raise ConflictError(f"queue {queue} is paused; choose another --queue")
        page = await store.find(JobQuery(queues=frozenset({queue}), limit=1))
        workers = [one.name for one in await self._client.workers() if queue in one.queues]
        if page.rows or workers:
            user = f"worker {workers[0]}" if workers else f"job {page.rows[0].id}"
            raise ConflictError(
                f"queue {queue} is in use ({user}); choose another --queue, or omit it"
            )

    async def run(self) -> BenchmarkResult:
        # A cancelled call may still be stored later, so a cancellation waits for the current one.
        measuring = asyncio.create_task(self._measure())
        try:
            await asyncio.wait({measuring})
        finally:
            self._stopping = True
            await asyncio.wait({measuring})
            if not measuring.cancelled():
                measuring.exception()  # retrieved, also if the removal fails, too
            await self._remove()
        return measuring.result()

    async def _measure(self) -> BenchmarkResult:
        await self._enqueue(1)  # warms up
        await self._delete(self._ids)  # without the permission, fails before many jobs are stored
        self._ids.clear()
        single_jobs = self._jobs // 10
        single = await self._time_enqueues(single_jobs, 1)
        size = min(BATCH, self._jobs - single_jobs)
        batch = await self._time_enqueues(self._jobs - single_jobs, size)
        async with self._running_worker() as settled:
            drain = await self._time_drain(settled)
            latencies = await self._measure_latencies(settled)
        return BenchmarkResult(
            single=single, batch=batch, batch_size=size, drain=drain, latencies=latencies
        )

    async def _run_job(self) -> None:
        """Run a job: the task of the benchmark."""
        self._last_start = time.perf_counter()
        if self._first_start is None:
            self._first_start = _Stopwatch()

    async def _enqueue(self, count: int) -> None:
        if self._stopping:
            raise asyncio.CancelledError
        jobs = [new_job(self._spec, (), {}, NO_OPTIONS, self._client.codec) for _ in range(count)]
        self._ids += [job.id for job in jobs]
        for result in await self._client.enqueue(jobs):
            check_accepted(result)

    async def _time_enqueues(self, count: int, size: int) -> Throughput:
        phase = "enqueue one by one" if size == 1 else f"enqueue {size:,} a call"
        watch = _Stopwatch()
        for done in range(0, count, size):
            self._report(phase, done, count)
            await self._enqueue(min(size, count - done))
        return watch.throughput(count)

    @asynccontextmanager
    async def _running_worker(self) -> AsyncIterator[CountSettled]:
        """Run a worker that does nothing else; yield the number of jobs that it settled."""
        config = WorkerConfig(
            queues={self._queue: self._concurrency}, schedules=False, maintenance=False
        )
        tasks = Registry()
        tasks.add(self._spec)
        worker = Worker(self._client.store.twin(), tasks, self._client.codec, config)
        running = asyncio.create_task(worker.run())

        def settled() -> int:
            if running.done():
                running.result()  # raises the error that ended the worker
            return worker.settled.get(State.SUCCEEDED, 0)  # a released attempt runs again

        try:
            yield settled
        finally:
            worker.stop()
            await running

    async def _time_drain(self, settled: CountSettled) -> Throughput:
        """Time the drain from the start of the first job until all jobs are settled."""
        await self._until_settled(settled, self._jobs, f"drain, {self._concurrency:,} at a time")
        assert self._first_start is not None
        return self._first_start.throughput(self._jobs)

    async def _measure_latencies(self, settled: CountSettled) -> list[float]:
        samples = min(MAX_SAMPLES, max(MIN_SAMPLES, self._jobs // 10))
        latencies = []
        for done in range(samples):
            self._report("start latency", done, samples)
            await asyncio.sleep(IDLE_PAUSE)
            began = time.perf_counter()
            await self._enqueue(1)
            await self._until_settled(settled, self._jobs + done + 1)
            latencies.append(self._last_start - began)
        return latencies

    async def _until_settled(self, settled: CountSettled, count: int, phase: str = "") -> None:
        """Wait until the worker has settled this many jobs."""
        last, changed_at = -1, time.monotonic()
        while (now := settled()) < count:
            if self._stopping:
                raise asyncio.CancelledError
            if now != last:
                last, changed_at = now, time.monotonic()
            elif time.monotonic() - changed_at > STALL_TIMEOUT:
                raise ConflictError(
                    f"no job of queue {self._queue} finished for {STALL_TIMEOUT:.0f} s: "
                    "is it paused or limited by a rate, or were its jobs canceled?"
                )
            if phase:
                self._report(phase, now, count)
            await asyncio.sleep(POLL_INTERVAL)

    async def _remove(self) -> None:
        """Delete every job of this run, in batches."""
        remaining = list(self._ids)
        total = len(remaining)
        try:
            while remaining:
                self._report("remove", total - len(remaining), total)
                await self._delete(remaining[:BATCH])
                del remaining[:BATCH]
            self._report("remove", total, total)
        except (StoreError, ConflictError) as error:
            raise StoreUnavailableError(
                f"{len(remaining):,} jobs of the benchmark remain in queue {self._queue}: {error}; "
                f"run windlass queues clear {self._queue}"
            ) from error

    async def _delete(self, ids: Sequence[UUID]) -> None:
        """Delete these jobs; cancels those that have not run."""
        store = self._client.store
        active = await self._delete_finished(ids)
        if active:
            await store.apply([CancelRequest(job_id=id_, by="windlass bench") for id_ in active])
            if active := await self._delete_finished(active):
                raise ConflictError(f"{len(active):,} jobs still run")

    async def _delete_finished(self, ids: Sequence[UUID]) -> list[UUID]:
        """Delete the finished jobs of these; return the others."""
        results = await self._client.store.delete(ids)
        return [
            id_
            for id_, result in zip(ids, results, strict=True)
            if not result.applied and result.status is not Status.MISSING
        ]
