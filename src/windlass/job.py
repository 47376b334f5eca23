"""A job that was enqueued, in its caller's hands: look at it, wait for it, follow it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import UUID

from windlass.client import Client, accepted, check_accepted
from windlass.core.clock import to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.duration import Duration, seconds
from windlass.core.errors import CodecError, JobFailedError
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.core.job.failure import FailureDetails, details
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.diagnosis import Why
from windlass.core.sizes import KIB
from windlass.store import Store
from windlass.sync import LoopThread
from windlass.task_spec import Registry

R = TypeVar("R")
LAST_LINES = 20
LAST_TEXT = 16 * KIB  # characters of them, all together
_LINES = frozenset({EventType.LOG, EventType.WARNING, EventType.ERROR})


class Home(Protocol):
    """What a job needs of the app it belongs to."""

    @property
    def codec(self) -> Codec: ...
    @property
    def tasks(self) -> Registry: ...
    @property
    def sync(self) -> LoopThread: ...
    def client(self) -> Client: ...


class Job(Generic[R]):
    """`R` is its task's result."""

    def __init__(self, app: Home, known: JobRow | Enqueued) -> None:
        """From its row, or from an enqueue that was accepted: its row is then made on demand."""
        self._app = app
        self._known = known
        self.duplicate = False  # whether another job, enqueued before, stands for this request
        if isinstance(known, Enqueued):
            asked = known.new.id
            self.id: UUID = asked if known.existing is None else known.existing.id
            self.duplicate = self.id != asked
        else:
            self.id = known.id

    @property
    def row(self) -> JobRow:
        """The whole row, as last seen."""
        if isinstance(self._known, Enqueued):
            self._known = accepted(self._known)
        return self._known

    @property
    def state(self) -> State:
        """As last seen; `refresh` looks again."""
        return self.row.state

    @property
    def percent(self) -> int:
        return self.row.percent

    @property
    def last_error(self) -> dict[str, Any] | None:
        """What went wrong last: type, message, step, attempt, traceback; None after a success."""
        error = self.row.error
        if error is None:
            return None
        said = _decoded(self._app.codec, error.body, Purpose.ERROR) or {}
        return {
            "type": said.get("type") or error.code,
            "message": said.get("message") or error.code,
            "error_type": error.kind.value,
            "step": error.step,
            "attempt": error.attempt,
            "at": to_datetime(error.at),
            "traceback": said.get("traceback"),
        }

    @property
    def failure_details(self) -> FailureDetails | None:
        """For people: what failed, where, of which sort, and what to try."""
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
        self._known = await self._app.client().get(self.id)
        return self

    def refresh(self) -> Job[R]:
        return self._app.sync.call(self.arefresh())

    async def await_end(self, timeout: Duration | None = None) -> Job[R]:
        """Wait until it has ended; raises TimeoutError if that takes longer."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                self._known = await self._app.client().wait(self.id)
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
        """What the task returned, or JobFailedError with the remote traceback."""
        await self.await_end(timeout)
        return self._result()

    def result(self, timeout: Duration | None = None) -> R:
        self.wait(timeout)
        return self._result()

    def _result(self) -> R:
        row = self.row
        if row.state is not State.SUCCEEDED:
            raise explain(row, self._app.codec)
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
        """Do the finished job again as a new one; one that is under way already is the answer."""
        return self._again(await self._app.client().retry(self.id))

    def retry(self) -> Job[R]:
        return self._app.sync.call(self.aretry())

    async def aresume(self) -> Job[R]:
        """The same, going on after the last step that it completed."""
        return self._again(await self._app.client().resume(self.id))

    def resume(self) -> Job[R]:
        return self._app.sync.call(self.aresume())

    async def awhy(self) -> Why:
        """Why it is not running, or not any more: every reason that holds, the weightiest first."""
        return await self._app.client().why(self.id)

    def why(self) -> Why:
        return self._app.sync.call(self.awhy())

    def _again(self, answer: Enqueued) -> Job[R]:
        check_accepted(answer)
        return Job(self._app, answer)

    async def aevents(self, after: int = 0) -> AsyncGenerator[Event]:
        """Every event, then live ones until the last, each with all it says in its `data`.

        The last one also has the job's `artifacts` and its last `logs`.
        """
        client = self._app.client()
        told = Told(self._app.codec)
        if after:  # what the caller has seen already belongs to the sum at the end
            await told.catch_up(client.store, self.id, after)
        async for event in client.events(self.id, after):
            yield told.tell(event)

    def events(self, after: int = 0) -> Iterator[Event]:
        """The same, for code without an event loop."""
        following = self.aevents(after)
        try:
            while (event := self._app.sync.call(_next(following))) is not None:
                yield event
        finally:
            self._app.sync.call(following.aclose())


async def _next(following: AsyncIterator[Event]) -> Event | None:
    return await anext(following, None)


class Told:
    """Events in plain words, and what is summed up in the last one."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._artifacts: list[dict[str, Any]] = []
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    async def catch_up(self, store: Store, job_id: UUID, until: int) -> None:
        seq = 0
        while seq < until and (page := await store.events(job_id, seq)) and page.events:
            for event in page.events:
                seq = event.seq
                if seq <= until:
                    self.tell(event)

    def tell(self, event: Event) -> Event:
        told = plain(event, self._codec)
        self.remember(told)
        if not event.final:
            return told
        summed = {"artifacts": self._artifacts, "logs": list(self._lines)}
        return replace(told, data={**told.data, **summed})

    def remember(self, told: Event) -> None:
        """What the last event will sum up, of one in plain words."""
        if told.type is EventType.ARTIFACT:
            self._artifacts.append(dict(told.data))
        elif told.type in _LINES:
            self._say(str(told.data.get("message", "")))

    def _say(self, line: str) -> None:
        """The newest always stays; there may be many who each remember some."""
        self._lines.append(line)
        while len(self._lines) > 1 and sum(map(len, self._lines)) > LAST_TEXT:
            self._lines.popleft()


def plain(event: Event, codec: Codec) -> Event:
    """An event in plain words; the last is still without its sum."""
    data = dict(event.data)
    if event.type is EventType.JOB_COMPLETED:
        data["output"] = _decoded(codec, event.body, Purpose.RESULT)
    elif data.get("error") and event.type is not EventType.RESYNC:
        said = _facts(codec, event, Purpose.ERROR)
        data["errorMessage"] = said.get("message") or data["error"].get("code")
        data["errors"] = [data["errorMessage"]]
    elif event.type not in LIFECYCLE:
        data |= _facts(codec, event, Purpose.EVENT)
    return replace(event, data=data)


def _facts(codec: Codec, event: Event, purpose: Purpose) -> dict[str, Any]:
    """Whoever may work may store any bytes; what is no set of facts adds none."""
    said = _decoded(codec, event.body, purpose)
    return said if isinstance(said, dict) else {}


def _decoded(codec: Codec, body: bytes | None, purpose: Purpose) -> Any:
    if body is None:
        return None
    try:
        return codec.decode(body, purpose)
    except CodecError:
        return None  # written with a key that is not here; the bytes are still there


def explain(row: JobRow, codec: Codec) -> JobFailedError:
    """Why a job did not succeed, for whoever waited for its result."""
    if row.state is State.CANCELED:
        return JobFailedError(
            f"job {row.id} was canceled: {row.cancel_reason or 'no reason given'}",
            state=row.state.value,
        )
    error = row.error
    said = codec.decode(error.body, Purpose.ERROR) if error and error.body else {}
    what = said.get("message") or (error.code if error else "unknown")
    if said.get("type") and said["type"] != what:
        what = f"{said['type']}: {what}"
    failed = JobFailedError(
        f"job {row.id} ({row.task}) failed in attempt {row.attempt}: {what}",
        state=row.state.value,
        remote_traceback=said.get("traceback"),
    )
    if failed.remote_traceback:
        failed.add_note(f"In the worker:\n{failed.remote_traceback.rstrip()}")
    return failed
