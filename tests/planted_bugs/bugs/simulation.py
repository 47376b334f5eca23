"""Mistakes that simulated lives show: by what ghosts say, by rows, by requests that come late."""

from __future__ import annotations

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.decisions import row_change
from windlass.core.decisions.transition import Answer
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.worker_presence import WORKER
from windlass.store import Saying
from windlass.stores.memory import MemoryStore

LIVES = "tests/crash/test_simulation.py::"


@caught_by(LIVES + "test_a_ghost_that_speaks_is_not_heard")
def progress_is_written_by_the_jobs_id() -> None:
    """What anybody says about a job that runs is taken for its worker's words."""
    record = MemoryStore._record

    def planted(self: MemoryStore, saying: Saying) -> Answer:
        row = self._data.jobs[saying.lease.job_id]
        fenced = any(record.checkpoint is not None for record in saying.records)
        if row.state is State.RUNNING and not fenced:
            saying = Saying(row.lease, saying.records)
        return record(self, saying)

    swap(MemoryStore, "_record", planted)


@caught_by(LIVES + "test_the_last_row_of_each_job_is_what_the_answers_led_to")
def a_rescue_is_counted_nowhere() -> None:
    """A lease that ran out leaves no trace in the job: one that kills its workers never ends."""
    swap(row_change, "_crashed", lambda _: False)


@caught_by(LIVES + "test_requests_that_arrive_after_their_sender_gave_up_lose_nothing")
def the_jobs_of_the_living_are_not_rescued() -> None:
    """A lease that ran out is taken back from the dead only: who lives is believed to be at it."""
    expired = MemoryStore.expired

    async def planted(self: MemoryStore, limit: int) -> list[JobRow]:
        alive = {entry.key for entry in await self.list_records(WORKER)}
        return [row for row in await expired(self, limit) if row.worker not in alive]

    swap(MemoryStore, "expired", planted)
