"""Mistakes in what runs a task: its timeout, its process, its directories."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.clock import SECOND
from windlass.core.decisions.outcome import Failed, Outcome
from windlass.core.job.row import JobRow
from windlass.process.spawn import Process
from windlass.task_spec import TaskSpec
from windlass.worker import executor
from windlass.worker.context import Context
from windlass.worker.executor import TaskRunner, describe
from windlass.worker.loops.cleaner import Cleaner
from windlass.worker.unknown_tasks import UnknownTaskError
from windlass.workspace import Workspaces

EXECUTOR = "tests/worker/test_executor.py::"
POOL = "tests/process/test_pool.py::"
SPACES = "tests/test_workspace.py::"


# -- the attempt


@caught_by(EXECUTOR + "test_a_timeout_begins_with_the_attempt_and_not_with_the_enqueue")
def a_timeout_counts_from_the_enqueue() -> None:
    """The time that a job waited in line is taken off the time that it may run."""
    call = TaskRunner._call

    async def planted(self: TaskRunner, spec: TaskSpec, job: JobRow, *rest: Any) -> Any:
        if job.policy.timeout is None:
            return await call(self, spec, job, *rest)
        waited = (await self._store.ping() - job.created_at) / SECOND
        async with asyncio.timeout(job.policy.timeout - waited):
            return await call(self, spec, job, *rest)

    swap(TaskRunner, "_call", planted)


@caught_by(EXECUTOR + "test_a_thread_past_its_timeout_keeps_slot_and_lease_until_it_returns")
def a_thread_past_its_timeout_gives_its_slot_away() -> None:
    """A timed-out thread runs on, while its job is settled and its slot taken by the next."""

    async def planted(running: asyncio.Future[Any], context: Context) -> None:
        context.ask_to_stop()

    swap(executor, "_returned", planted)


@caught_by(EXECUTOR + "test_an_unknown_task_is_snoozed_with_a_warning")
def an_unknown_task_is_thrown_away() -> None:
    """A job whose task this worker does not know yet is ended: a rolling deploy loses jobs."""

    async def planted(self: TaskRunner, job: JobRow, context: Context) -> Outcome:
        error = UnknownTaskError(job.task)
        return Failed(failure=describe(error, self._codec, terminal=True))

    swap(TaskRunner, "_unknown", planted)


@caught_by(
    EXECUTOR + "test_whatever_a_task_raises_fails_it_and_nothing_else[False-error1]",
    raises=SystemExit,
)
def a_task_that_exits_takes_the_worker_along() -> None:
    """SystemExit from a task ends the worker, with all that runs beside it."""
    failed = TaskRunner._failed

    def planted(
        self: TaskRunner, error: BaseException, spec: TaskSpec, context: Context
    ) -> Outcome:
        if not isinstance(error, Exception):
            raise error
        return failed(self, error, spec, context)

    swap(TaskRunner, "_failed", planted)


# -- its process


@caught_by(
    "tests/worker/child/test_process_isolation.py::"
    "test_a_job_that_was_running_when_a_worker_died_runs_in_a_process_of_its_own"
)
def a_suspect_runs_beside_its_neighbours() -> None:
    """A job that may have killed a worker runs inside the next one: its neighbours die again."""

    def planted(self: TaskRunner, spec: TaskSpec, job: JobRow) -> bool:
        return spec.options.executor == "process"

    swap(TaskRunner, "_apart", planted)


def _to_the_child_alone(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)


@caught_by(POOL + "test_stopping_is_asked_for_and_takes_the_grandchildren_along")
def grandchildren_are_left_behind() -> None:
    """What a child process started is not killed with it, and runs on as nobody's."""
    swap(Process, "_signal", _to_the_child_alone)


@caught_by(POOL + "test_closing_leaves_neither_processes_nor_descriptors")
def ended_children_are_not_reaped() -> None:
    """Children that ended stay as zombies until the table of processes is full."""

    def planted(self: Process) -> None:
        self._loop.remove_reader(self._watch)
        os.close(self._watch)
        self._groups.remove(self.pid)
        self._process.returncode = 0
        self.ended.set_result(0)

    swap(Process, "_reap", planted)


# -- its directories


@caught_by(SPACES + "test_links_inside_are_removed_and_not_followed", raises=FileNotFoundError)
def cleanup_follows_links() -> None:
    """A link to a directory is entered, and what it points to is deleted."""

    def empty(place: Path) -> None:
        for entry in place.iterdir():
            if entry.is_dir():
                empty(entry)
            else:
                entry.unlink()
        if place.is_symlink():
            place.unlink()
        else:
            place.rmdir()

    def planted(self: Workspaces, root: int, lineage: UUID, warnings: list[str]) -> None:
        place = self.data / "temp" / str(lineage)
        if place.exists():
            empty(place)

    swap(Workspaces, "_remove", planted)


@caught_by(SPACES + "test_a_directory_swapped_for_a_link_while_it_is_emptied_leads_nowhere")
def cleanup_looks_first_and_deletes_by_path_then() -> None:
    """A directory is seen to be no link, and is one by the time its files are deleted by path."""

    def planted(self: Workspaces, root: int, lineage: UUID, warnings: list[str]) -> None:
        place = self.data / "temp" / str(lineage)
        for path in [*place.glob("*/*"), *place.glob("*"), place]:
            with suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()

    swap(Workspaces, "_remove", planted)


@caught_by("tests/worker/loops/test_cleaner.py::"
           "test_the_workspace_of_an_active_job_is_never_an_orphan")  # fmt: skip
def cleanup_goes_by_age_alone() -> None:
    """Old directories are removed, also those of a job that has waited for days."""

    async def planted(self: Cleaner, lineage: UUID, first: JobRow | None) -> bool:
        return False

    swap(Cleaner, "_active", planted)
