"""Bugs in the task runner: timeouts, child processes and workspaces."""

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
from windlass.process.child_process import ChildProcess
from windlass.task_spec import TaskSpec
from windlass.worker.context import Context
from windlass.worker.execution import task_executor
from windlass.worker.execution.attempt_failure import failure_from_error
from windlass.worker.execution.task_executor import TaskExecutor
from windlass.worker.execution.unknown_tasks import UnknownTaskError
from windlass.worker.loops.workspace_cleaner import WorkspaceCleaner
from windlass.workspace import Workspaces

EXECUTOR = "tests/worker/test_task_executor.py::"
POOL = "tests/process/test_pool.py::"
SPACES = "tests/test_workspace.py::"


# -- attempts


@caught_by(EXECUTOR + "test_a_timeout_starts_with_the_attempt_and_not_with_the_enqueue")
def a_timeout_counts_from_the_enqueue() -> None:
    """The queue wait of a job reduces its timeout."""
    call = TaskExecutor._call

    async def planted(self: TaskExecutor, spec: TaskSpec, job: JobRow, *rest: Any) -> Any:
        if job.policy.timeout is None:
            return await call(self, spec, job, *rest)
        waited = (await self._store.ping() - job.created_at) / SECOND
        async with asyncio.timeout(job.policy.timeout - waited):
            return await call(self, spec, job, *rest)

    swap(TaskExecutor, "_call", planted)


@caught_by(EXECUTOR + "test_a_thread_past_its_timeout_keeps_slot_and_lease_until_it_returns")
def a_timed_out_thread_releases_its_slot() -> None:
    """A timed-out thread still runs while its job is settled and its slot is reused."""

    async def planted(running: asyncio.Future[Any], context: Context) -> None:
        context.request_stop()

    swap(task_executor, "_stop_thread", planted)


@caught_by(EXECUTOR + "test_an_unknown_task_is_snoozed_with_a_warning")
def an_unknown_task_fails() -> None:
    """A job with an unknown task fails: a rolling deploy loses jobs."""

    async def planted(self: TaskExecutor, job: JobRow, context: Context) -> Outcome:
        error = UnknownTaskError(job.task)
        return Failed(failure=failure_from_error(error, self._codec, terminal=True))

    swap(TaskExecutor, "_handle_unknown_task", planted)


@caught_by(
    EXECUTOR + "test_any_exception_of_a_task_fails_only_its_job[False-error1]",
    raises=SystemExit,
)
def a_task_that_exits_ends_the_worker() -> None:
    """SystemExit from a task ends the worker and all its running jobs."""
    outcome_of = TaskExecutor._outcome_of

    def planted(
        self: TaskExecutor, error: BaseException, spec: TaskSpec, context: Context
    ) -> Outcome:
        if not isinstance(error, Exception):
            raise error
        return outcome_of(self, error, spec, context)

    swap(TaskExecutor, "_outcome_of", planted)


# -- child processes


@caught_by(
    "tests/worker/child/test_process_isolation.py::"
    "test_a_job_that_was_running_when_a_worker_died_runs_in_a_child_process"
)
def a_suspect_runs_beside_other_jobs() -> None:
    """A job that may have killed a worker runs inside the next one: other jobs die again."""

    def planted(self: TaskExecutor, spec: TaskSpec, job: JobRow) -> bool:
        return spec.options.executor == "process"

    swap(TaskExecutor, "_runs_in_child", planted)


def _to_the_child_alone(process: ChildProcess, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)


@caught_by(POOL + "test_a_stop_ends_the_child_and_its_grandchildren")
def grandchildren_are_left_behind() -> None:
    """Processes that a child process started are not killed with it."""
    swap(ChildProcess, "_signal", _to_the_child_alone)


@caught_by(POOL + "test_closing_leaves_neither_processes_nor_descriptors")
def ended_children_are_not_reaped() -> None:
    """Ended children stay as zombies until the process table is full."""

    def planted(self: ChildProcess) -> None:
        self._loop.remove_reader(self._exit_fd)
        os.close(self._exit_fd)
        self._groups.remove(self.pid)
        self._process.returncode = 0
        self.ended.set_result(0)

    swap(ChildProcess, "_reap", planted)


# -- workspaces


@caught_by(SPACES + "test_links_inside_are_removed_and_not_followed", raises=FileNotFoundError)
def cleanup_follows_links() -> None:
    """A link to a directory is followed, and its target is deleted."""

    def empty(path: Path) -> None:
        for entry in path.iterdir():
            if entry.is_dir():
                empty(entry)
            else:
                entry.unlink()
        if path.is_symlink():
            path.unlink()
        else:
            path.rmdir()

    def planted(self: Workspaces, root: int, lineage: UUID, warnings: list[str]) -> None:
        path = self.data / "temp" / str(lineage)
        if path.exists():
            empty(path)

    swap(Workspaces, "_remove", planted)


@caught_by(SPACES + "test_removal_follows_no_link_that_replaces_a_directory_being_emptied")
def cleanup_checks_first_and_then_deletes_by_path() -> None:
    """A directory is checked, replaced by a link, and its files are deleted by path."""

    def planted(self: Workspaces, root: int, lineage: UUID, warnings: list[str]) -> None:
        path = self.data / "temp" / str(lineage)
        for entry in [*path.glob("*/*"), *path.glob("*"), path]:
            with suppress(OSError):
                if entry.is_dir() and not entry.is_symlink():
                    entry.rmdir()
                else:
                    entry.unlink()

    swap(Workspaces, "_remove", planted)


@caught_by("tests/worker/loops/test_workspace_cleaner.py::"
           "test_the_workspace_of_an_active_job_is_never_an_orphan")  # fmt: skip
def cleanup_uses_only_the_age() -> None:
    """Old directories are deleted, even those of a job that has waited for days."""

    async def planted(self: WorkspaceCleaner, lineage: UUID, first: JobRow | None) -> bool:
        return False

    swap(WorkspaceCleaner, "_lineage_active", planted)
