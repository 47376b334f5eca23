"""What a task holds in a child process: the same as in the worker, where the real one is.

What it says goes over one way; the worker's own `Context` counts, maps, encodes and stores it. What
needs an answer (steps, flush, directories) is asked for. What could never be stored is refused
where it is said, by the rules of `Context` itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from windlass.core import errors
from windlass.core.codec import JsonCodec, Purpose
from windlass.core.errors import WindlassError
from windlass.core.event import EventType
from windlass.core.job.row import JobRow
from windlass.process.channel import Message
from windlass.process.parent import Parent, RefusedError
from windlass.store import Store
from windlass.task_spec import TaskSpec, encode_result
from windlass.worker.child import messages
from windlass.worker.context import Context
from windlass.worker.hooks import Kit
from windlass.worker.suspension import Seen
from windlass.workspace import Kind

_NOT_HERE = cast("Store", None)  # all that would touch the store is asked of the worker


class ChildContext(Context):
    def __init__(
        self, job: JobRow, parent: Parent, *, kit: Kit, state: Any, spec: TaskSpec
    ) -> None:
        super().__init__(job, _NOT_HERE, JsonCodec(), parent.loop, kit=kit, state=state, spec=spec)
        self._parent = parent
        self._directories: dict[Kind, Path] = {}
        self._over = False
        self._sending = threading.RLock()

    def end(self) -> None:
        """Refuse messages of threads that the task left behind.

        Waits for a message that is being sent: sent after the attempt's end, it would be recorded
        for the child's next attempt.
        """
        self._over = True
        with self._sending:
            pass

    # -- one way

    def progress(self, percent: float, message: str | None = None) -> None:
        super().progress(percent, message)
        self._say(
            {"say": "progress", "percent": float(percent), "text": message, "stage": self._stage}
        )

    def _add(self, kind: EventType, data: dict[str, Any] | None = None, **values: Any) -> None:
        super()._add(kind, data, **values)
        self.take()
        if kind is EventType.STEP_STATUS:
            self._say({"say": "completed", "step": values["step"]})
        elif kind is not EventType.STEP_PROGRESS:  # which `progress` says in its own words
            self._say({"say": "event", "kind": kind, "data": data})

    def _say(self, message: Message) -> None:
        if self._over:  # without the lock, so that a busy thread does not hold up `end`
            return
        with self._sending:
            if not self._over:
                self._parent.say(message)

    # -- with an answer

    async def _kept(self, name: str) -> bytes | None:
        found = await self._ask({"say": "step", "name": name})
        return None if found is None else self._codec.encode(found["value"], Purpose.CHECKPOINT)

    async def _keep(self, name: str, value: Any) -> bytes:
        self._codec.encode(value, Purpose.CHECKPOINT)  # says which part of it cannot be kept
        kept = await self._ask({"say": "keep", "name": name, "value": value})
        return self._codec.encode(kept["value"], Purpose.CHECKPOINT)

    async def see_all(self, ids: Sequence[UUID]) -> Seen:
        told = await self._ask({"say": "see", "ids": [str(job_id) for job_id in ids]})
        return Seen(
            results={int(place): value for place, value in told["results"].items()},
            open=told["open"],
            missing=told["missing"],
            lost=[(place, end) for place, end in told["lost"]],
            gone=told["gone"],
        )

    async def signal_of(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._ask({"say": "signal", "name": name})
        return found

    async def flush(self) -> None:
        await self._ask({"say": "flush"})

    async def _settlement(self, result: Any) -> tuple[str, str]:
        encode_result(result, self._codec)  # so that it is refused here, where it was made
        children = [messages.to_json(new) for new in self.children]
        sql, text = await self._ask({"say": "settle", "result": result, "children": children})
        return sql, text

    def _directory(self, kind: Kind) -> Path:
        if kind not in self._directories:
            try:
                path = self._asked({"say": "directory", "kind": kind}).result()
            except RefusedError as refused:
                raise _as_ours(refused) from None
            self._directories[kind] = Path(path)
        return self._directories[kind]

    async def _ask(self, message: Message) -> Any:
        try:
            return await asyncio.wrap_future(self._asked(message))
        except RefusedError as refused:
            raise _as_ours(refused) from None

    def _asked(self, message: Message) -> Future[Any]:
        with self._sending:
            if self._over:
                raise errors.StaleLeaseError(f"this attempt of job {self.job.id} is over")
            return self._parent.ask(message)


def _as_ours(refused: RefusedError) -> Exception:
    """The same class, where it is one of the errors that Windlass documents."""
    kind = getattr(errors, refused.kind, None)
    if isinstance(kind, type) and issubclass(kind, WindlassError):
        return kind(refused.message)
    return RuntimeError(f"{refused.kind}: {refused.message}")
