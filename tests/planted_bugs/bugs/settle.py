"""Bugs in the settler of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.decisions import outcome
from windlass.core.decisions.outcome import Outcome, Succeeded
from windlass.core.job.row import JobRow
from windlass.worker.execution.task_executor import TaskExecutor
from windlass.worker.loops import settler
from windlass.worker.loops.settler import Settler
from windlass.worker.running_attempts import RunningAttempt

SETTLER = "tests/worker/loops/test_settler.py::"


@caught_by("tests/testing/test_crash_at.py::test_a_worker_crashes_at_the_point_and_another_continues"
           "[async-before-step:voice-running-voice voice render]")  # fmt: skip
def a_job_is_settled_before_its_task_has_run() -> None:
    """The job is removed from the queue at its fetch, not after its run."""
    run = TaskExecutor.run

    async def planted(self: TaskExecutor, job: JobRow, *more: Any) -> Outcome:
        await self._store.apply([outcome.succeed(job, Succeeded())])
        return await run(self, job, *more)

    swap(TaskExecutor, "run", planted)


@caught_by(SETTLER + "test_an_outcome_is_stored_while_other_jobs_run", waits=True)
def a_batch_of_settles_waits_until_it_is_full() -> None:
    """Settles are collected for a batch, and no timer writes a partial batch."""

    async def planted(self: Settler, no_backlog: asyncio.Event) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            if len(self._pending) >= settler.MAX_BATCH:
                batch, self._pending = self._pending, []
                await self._write(batch)

    swap(Settler, "run", planted)


@caught_by(SETTLER + "test_an_outcome_is_stored_while_other_jobs_run", waits=True)
def a_batch_of_settles_waits_for_idle() -> None:
    """Settles are collected until no attempt starts; with a long backlog that takes hours."""
    swap(settler, "BATCH_DELAY", 3600.0)


@caught_by(
    "tests/worker/test_worker.py::test_a_settle_whose_response_was_lost_is_repeated_and_counts_once"
)
def a_failed_settle_is_not_repeated() -> None:
    """If the store is unavailable at a settle, the result is dropped, and the job runs again."""

    async def planted(self: Settler, batch: Sequence[RunningAttempt]) -> None:
        with contextlib.suppress(Exception):
            await self._store.apply([attempt.transition for attempt in batch if attempt.transition])
        self._attempts.forget(batch)

    swap(Settler, "_write", planted)


@caught_by(
    "tests/worker/test_shutdown.py::test_a_job_that_cannot_be_settled_blocks_no_other_settle",
    waits=True,
)
def one_bad_settle_fails_its_whole_batch() -> None:
    """A batch with one invalid settle is dropped completely."""

    async def planted(self: Settler, batch: Sequence[RunningAttempt]) -> None:
        self._attempts.forget(batch)

    swap(Settler, "_write_one_by_one", planted)


@caught_by(
    "tests/worker/loops/test_workspace_cleaner.py::test_a_workspace_stays_until_the_success_is_stored"
)
def the_workspace_is_deleted_before_the_settle() -> None:
    """Files are deleted when the task returns: after a lost settle, the next attempt lacks them."""
    settle = Settler.settle

    def planted(self: Settler, attempt: RunningAttempt, ended: Outcome) -> None:
        workspaces = self._cleaner._workspaces
        if isinstance(ended, Succeeded) and workspaces is not None:
            workspaces.remove(attempt.job.lineage)
        settle(self, attempt, ended)

    swap(Settler, "settle", planted)
