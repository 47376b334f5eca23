"""Runs a claimed attempt: creates its context, executes its task, and hands over the outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from windlass.core.codec import Codec
from windlass.core.decisions.outcome import Aborted, Failed, Outcome, Released
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.app_parts import AppParts
from windlass.worker.context import Context
from windlass.worker.execution.attempt_failure import failure_from_error
from windlass.worker.execution.task_executor import TaskExecutor
from windlass.worker.loops.settler import Settler
from windlass.worker.running_attempts import RunningAttempt, StopReason

log = logging.getLogger("windlass.worker")


class AttemptRunner:
    def __init__(
        self,
        store: Store,
        tasks: Registry,
        codec: Codec,
        *,
        parts: AppParts,
        executor: TaskExecutor,
        settler: Settler,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._parts = parts
        self._executor = executor
        self._settler = settler
        self.state: Any = None  # yielded by the lifespan

    async def run(self, attempt: RunningAttempt) -> None:
        """Run an attempt and queue its outcome. Its lease is kept until the outcome is stored."""
        job = attempt.job
        outcome: Outcome | None = None
        try:
            attempt.context = context = self._context(job)
            attempt.started = True
            if attempt.stop_reason is None:  # else it was stopped before it started
                outcome = await self._executor.run(job, context, attempt.batch_call)
        except asyncio.CancelledError:
            pass  # stopped, or something that the task awaited was cancelled
        except BaseException as error:
            log.exception("job %s could not run", job.id)
            outcome = Failed(failure=failure_from_error(error, self._codec))
            if not isinstance(error, Exception):
                raise
        finally:
            if outcome is None or attempt.stop_reason is not None:
                outcome = self._outcome_after_stop(attempt, outcome)
            self._settler.settle(attempt, outcome)

    def _context(self, job: JobRow) -> Context:
        spec = self._tasks.get(job.task)
        return Context(
            job,
            self._store,
            self._codec,
            asyncio.get_running_loop(),
            (spec.options.stages if spec else None) or self._parts.stages,
            parts=self._parts,
            state=self.state,
            spec=spec,
        )

    def _outcome_after_stop(self, attempt: RunningAttempt, result: Outcome | None) -> Outcome:
        if attempt.stop_reason is StopReason.LOST:
            return Released()  # not stored: the settler drops the attempt
        released = attempt.stop_reason is StopReason.RELEASE
        if released and (result is None or isinstance(result, Failed)):
            return Released()  # an error caused by the stop is not the task's failure
        if result is not None:
            return result
        if attempt.stop_reason is StopReason.CANCEL:
            return Aborted(reason="canceled")
        # No stop was requested: something that the task awaited was cancelled.
        error = asyncio.CancelledError("the task was cancelled from within")
        step = attempt.context.current_step if attempt.context else None
        return Failed(failure=failure_from_error(error, self._codec, step=step))

    def release(self, attempt: RunningAttempt) -> None:
        """Requeue an attempt that was claimed and never started."""
        aborted = attempt.stop_reason is StopReason.CANCEL
        self._settler.settle(attempt, Aborted(reason="canceled") if aborted else Released())
