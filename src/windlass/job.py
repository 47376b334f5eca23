"""Handle of an enqueued job: read it, wait for it, follow its events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import UUID

from windlass.client import Client, accepted_row, check_accepted
from windlass.core.clock import to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.diagnosis import Diagnosis
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import CodecError, JobFailedError
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.core.job.failure_details import FailureDetails, details
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.size_limits import KIB
from windlass.loop_thread import LoopThread
from windlass.store import Store
from windlass.task_spec import Registry

R = TypeVar("R")
LAST_LINES = 20  # log lines in the final event
LAST_TEXT = 16 * KIB  # characters of these lines in total
_LINE_TYPES = frozenset({EventType.LOG, EventType.WARNING, EventType.ERROR})


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
        body = _decoded(self._app.codec, error.body, Purpose.ERROR) or {}
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


class EventDecoder:
    """Decodes the events of one job, and collects the summary of its final event."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._artifacts: list[dict[str, Any]] = []
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    async def catch_up(self, store: Store, job_id: UUID, until: int) -> None:
        """Collect the summary of the events up to `until`."""
        seq = 0
        while seq < until and (page := await store.events(job_id, seq)) and page.events:
            for event in page.events:
                seq = event.seq
                if seq <= until:
                    self.decode(event)

    def decode(self, event: Event) -> Event:
        """Return the decoded event; the final one with the summary."""
        decoded = decode_event(event, self._codec)
        self.collect(decoded)
        if not event.final:
            return decoded
        summary = {"artifacts": self._artifacts, "logs": list(self._lines)}
        return replace(decoded, data={**decoded.data, **summary})

    def collect(self, decoded: Event) -> None:
        """Add a decoded event to the summary of the final event."""
        if decoded.type is EventType.ARTIFACT:
            self._artifacts.append(dict(decoded.data))
        elif decoded.type in _LINE_TYPES:
            self._add_line(str(decoded.data.get("message", "")))

    def _add_line(self, line: str) -> None:
        """Add a log line; keep the newest ones, at most LAST_TEXT characters but at least one."""
        self._lines.append(line)
        while len(self._lines) > 1 and sum(map(len, self._lines)) > LAST_TEXT:
            self._lines.popleft()


def decode_event(event: Event, codec: Codec) -> Event:
    """Return the event with decoded data; the final one without its summary."""
    data = dict(event.data)
    if event.type is EventType.JOB_COMPLETED:
        data["output"] = _decoded(codec, event.body, Purpose.RESULT)
    elif data.get("error") and event.type is not EventType.RESYNC:
        error = _fields(codec, event, Purpose.ERROR)
        data["errorMessage"] = error.get("message") or data["error"].get("code")
        data["errors"] = [data["errorMessage"]]
    elif event.type not in LIFECYCLE:
        data |= _fields(codec, event, Purpose.EVENT)
    return replace(event, data=data)


def _fields(codec: Codec, event: Event, purpose: Purpose) -> dict[str, Any]:
    """Return the decoded body; empty if it is not an object, since workers may store any bytes."""
    body = _decoded(codec, event.body, purpose)
    return body if isinstance(body, dict) else {}


def _decoded(codec: Codec, body: bytes | None, purpose: Purpose) -> Any:
    if body is None:
        return None
    try:
        return codec.decode(body, purpose)
    except CodecError:
        return None  # encrypted with a key that is missing here


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
