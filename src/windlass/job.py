"""Handle of an enqueued job: read it, wait for it, follow its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import UUID

from windlass.client import Client, accepted_row, check_accepted
from windlass.core.clock import to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.diagnosis import Diagnosis
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import JobFailedError
from windlass.core.event import Event
from windlass.core.job.failure_details import FailureDetails, details
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.loop_thread import LoopThread
from windlass.stores.event_decoder import EventDecoder, decode_if_possible
from windlass.task_spec import Registry

R = TypeVar("R")


class JobApp(Protocol):
    """The parts of an app that a job needs."""

    @property
    def codec(self) -> Codec: ...
    @property
    def tasks(self) -> Registry: ...
    @property
    def sync(self) -> LoopThread: ...
    def client(self) -> Client: ...


class Job(Generic[R]):
    """Handle of a job; `R` is the type of its result."""

    def __init__(self, app: JobApp, source: JobRow | EnqueueResult) -> None:
        """Create from a row, or from an accepted enqueue: its row is then built on access."""
        self._app = app
        self._source = source
        self.duplicate = False  # whether the enqueue returned an existing job
        if isinstance(source, EnqueueResult):
            requested = source.new.id
            self.id: UUID = requested if source.existing is None else source.existing.id
            self.duplicate = self.id != requested
        else:
            self.id = source.id

    @property
    def row(self) -> JobRow:
        """Return the row, as last read."""
        if isinstance(self._source, EnqueueResult):
            self._source = accepted_row(self._source)
        return self._source

    @property
    def state(self) -> State:
        """Return the state, as last read; `refresh` reads it again."""
        return self.row.state

    @property
    def percent(self) -> int:
        return self.row.percent

    @property
    def last_error(self) -> dict[str, Any] | None:
        """Return type, message, error_type, step, attempt, at and traceback of the last error."""
        error = self.row.error
        if error is None:
            return None
        body = decode_if_possible(self._app.codec, error.body, Purpose.ERROR) or {}
        return {
            "type": body.get("type") or error.code,
            "message": body.get("message") or error.code,
            "error_type": error.kind.value,
            "step": error.step,
            "attempt": error.attempt,
            "at": to_datetime(error.at),
            "traceback": body.get("traceback"),
        }

    @property
    def failure_details(self) -> FailureDetails | None:
        """Return an explanation of the failure for users; None if the job did not fail."""
        row = self.row
        if row.state is not State.FAILED or row.error is None:
            return None
        return details(row.error, task=row.task, stage=row.stage)

    @property
    def can_resume(self) -> bool:
        return self.row.can_resume

    @property
    def last_completed_step(self) -> str | None:
        return self.row.last_step

    async def arefresh(self) -> Job[R]:
        self._source = await self._app.client().get(self.id)
        return self

    def refresh(self) -> Job[R]:
        return self._app.sync.call(self.arefresh())

    async def await_end(self, timeout: Duration | None = None) -> Job[R]:
        """Wait until it has ended. Raises TimeoutError after `timeout`."""
        limit = None if timeout is None else to_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                self._source = await self._app.client().wait(self.id)
        except TimeoutError:
            await self.arefresh()
            raise TimeoutError(
                f"job {self.id} ({self.row.task}) is still {self.state} after {limit:g} s; "
                f"is a worker running for queue {self.row.queue!r}?"
            ) from None
        return self

    def wait(self, timeout: Duration | None = None) -> Job[R]:
        return self._app.sync.call(self.await_end(timeout))

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Wait, and return the result. Raises JobFailedError with the remote traceback."""
        await self.await_end(timeout)
        return self._result()

    def result(self, timeout: Duration | None = None) -> R:
        self.wait(timeout)
        return self._result()

    def _result(self) -> R:
        row = self.row
        if row.state is not State.SUCCEEDED:
            raise job_failed_error(row, self._app.codec)
        if row.result is None:
            return cast("R", None)
        value = self._app.codec.decode(row.result, Purpose.RESULT)
        spec = self._app.tasks.get(row.task)
        return cast("R", spec.signature.restore_result(value) if spec else value)

    async def acancel(self, reason: str | None = None) -> State:
        return await self._app.client().cancel(self.id, reason=reason)

    def cancel(self, reason: str | None = None) -> State:
        return self._app.sync.call(self.acancel(reason))

    async def asubmit(self) -> State:
        return await self._app.client().submit(self.id)

    def submit(self) -> State:
        return self._app.sync.call(self.asubmit())

    async def aretry(self) -> Job[R]:
        """Re-run the finished job from the start, as a new job; returns an unfinished retry."""
        return self._rerun(await self._app.client().retry(self.id))

    def retry(self) -> Job[R]:
        return self._app.sync.call(self.aretry())

    async def aresume(self) -> Job[R]:
        """Re-run the finished job as a new job, from its last completed step."""
        return self._rerun(await self._app.client().resume(self.id))

    def resume(self) -> Job[R]:
        return self._app.sync.call(self.aresume())

    async def awhy(self) -> Diagnosis:
        """Return all reasons why it is not running, the most important first."""
        return await self._app.client().why(self.id)

    def why(self) -> Diagnosis:
        return self._app.sync.call(self.awhy())

    def _rerun(self, result: EnqueueResult) -> Job[R]:
        check_accepted(result)
        return Job(self._app, result)

    async def aevents(self, after: int = 0) -> AsyncGenerator[Event]:
        """Yield stored events, then live ones until the final event, with decoded `data`.

        The final event also has the job's `artifacts` and its last `logs`.
        """
        client = self._app.client()
        decoder = EventDecoder(self._app.codec)
        if after:  # the summary of the final event includes earlier events
            await decoder.catch_up(client.store, self.id, after)
        async for event in client.events(self.id, after):
            yield decoder.decode(event)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Like `aevents`, for code without an event loop."""
        events = self.aevents(after)
        try:
            while (event := self._app.sync.call(_next(events))) is not None:
                yield event
        finally:
            self._app.sync.call(events.aclose())


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)


def job_failed_error(row: JobRow, codec: Codec) -> JobFailedError:
    """Return the error that `result()` raises for a job that did not succeed."""
    if row.state is State.CANCELED:
        return JobFailedError(
            f"job {row.id} was canceled: {row.cancel_reason or 'no reason given'}",
            state=row.state.value,
        )
    error = row.error
    body = codec.decode(error.body, Purpose.ERROR) if error and error.body else {}
    message = body.get("message") or (error.code if error else "unknown")
    if body.get("type") and body["type"] != message:
        message = f"{body['type']}: {message}"
    failed = JobFailedError(
        f"job {row.id} ({row.task}) failed in attempt {row.attempt}: {message}",
        state=row.state.value,
        remote_traceback=body.get("traceback"),
    )
    if failed.remote_traceback:
        failed.add_note(f"In the worker:\n{failed.remote_traceback.rstrip()}")
    return failed
