"""Bugs that the simulation shows: by stale workers, final rows and late requests."""

from __future__ import annotations

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.decisions import decision_builder
from windlass.core.decisions.transition import ApplyResult
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.worker_presence import WORKER
from windlass.store import AttemptRecords
from windlass.stores.memory import MemoryStore

SIMULATION = "tests/crash/test_simulation.py::"


@caught_by(SIMULATION + "test_a_stale_worker_cannot_write_records_in_the_simulation")
def progress_is_written_by_the_jobs_id() -> None:
    """Records about a running job are accepted from any worker."""
    record = MemoryStore._record

    def planted(self: MemoryStore, entry: AttemptRecords) -> ApplyResult:
        row = self._data.jobs[entry.lease.job_id]
        fenced = any(record.checkpoint is not None for record in entry.records)
        if row.state is State.RUNNING and not fenced:
            entry = AttemptRecords(row.lease, entry.records)
        return record(self, entry)

    swap(MemoryStore, "_record", planted)


@caught_by(SIMULATION + "test_the_final_row_of_each_job_follows_from_the_call_results")
def a_rescue_is_not_counted() -> None:
    """A rescue is not counted: a job that kills its workers never ends."""
    swap(decision_builder, "_crashed", lambda _: False)


@caught_by(SIMULATION + "test_requests_that_arrive_after_their_sender_gave_up_lose_nothing")
def jobs_of_live_workers_are_not_rescued() -> None:
    """Expired leases of running workers are not rescued: the worker is trusted to run the job."""
    due = MemoryStore.due

    async def planted(self: MemoryStore, limit: int) -> list[JobRow]:
        alive = {entry.key for entry in await self.list_records(WORKER)}
        rows = await due(self, limit)
        return [r for r in rows if r.state is not State.RUNNING or r.worker not in alive]

    swap(MemoryStore, "due", planted)
