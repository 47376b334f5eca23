"""Context of a task in a child process; the real context is in the worker.

Events are sent one way: the worker's own `Context` numbers, maps, encodes and stores them. Steps,
flushes and directories are requests with a response. Values that cannot be stored are refused
here, by the rules of `Context` itself.
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
from windlass.process.parent_connection import ParentConnection, ParentError
from windlass.store import Store
from windlass.task_spec import TaskSpec, encode_result
from windlass.worker.app_parts import AppParts
from windlass.worker.child import job_json
from windlass.worker.context import Context
from windlass.worker.dependency_results import ChildResults
from windlass.workspace import WorkspaceKind

_NO_STORE = cast("Store", None)  # the worker makes all store calls


class ChildContext(Context):
    def __init__(
        self,
        job: JobRow,
        parent: ParentConnection,
        *,
        parts: AppParts,
        state: Any,
        spec: TaskSpec,
    ) -> None:
        super().__init__(
            job,
            _NO_STORE,
            JsonCodec(),
            parent.loop,
            parts=parts,
            state=state,
            spec=spec,
        )
        self._parent = parent
        self._directories: dict[WorkspaceKind, Path] = {}
        self._ended = False
        self._sending = threading.RLock()

    def end(self) -> None:
        """Refuse messages of threads that outlive the task.

        Waits for a message that is being sent: sent after the attempt's end, it would be recorded
        for the child's next attempt.
        """
        self._ended = True
        with self._sending:
            pass

    # -- notifications

    def progress(self, percent: float, message: str | None = None) -> None:
        super().progress(percent, message)
        self._notify(
            {"type": "progress", "percent": float(percent), "text": message, "stage": self._stage}
        )

    def _add(self, kind: EventType, data: dict[str, Any] | None = None, **values: Any) -> None:
        super()._add(kind, data, **values)
        self.take()
        if kind is EventType.STEP_STATUS:
            self._notify({"type": "step_completed", "step": values["step"]})
        elif kind is not EventType.STEP_PROGRESS:  # sent by `progress`
            self._notify({"type": "event", "kind": kind, "data": data})

    def _notify(self, message: Message) -> None:
        if self._ended:  # without the lock, so that a busy thread does not delay `end`
            return
        with self._sending:
            if not self._ended:
                self._parent.send(message)

    # -- requests

    async def _load_checkpoint(self, name: str) -> bytes | None:
        found = await self._request({"type": "load_checkpoint", "name": name})
        return None if found is None else self._codec.encode(found["value"], Purpose.CHECKPOINT)

    async def _save_checkpoint(self, name: str, value: Any) -> bytes:
        self._codec.encode(value, Purpose.CHECKPOINT)  # raises here if it cannot be stored
        saved = await self._request({"type": "save_checkpoint", "name": name, "value": value})
        return self._codec.encode(saved["value"], Purpose.CHECKPOINT)

    async def child_results(self, ids: Sequence[UUID]) -> ChildResults:
        request = {"type": "child_results", "ids": [str(job_id) for job_id in ids]}
        found = await self._request(request)
        return ChildResults(
            results={int(index): value for index, value in found["results"].items()},
            unfinished=found["unfinished"],
            missing=found["missing"],
            failed=[(index, state) for index, state in found["failed"]],
            pruned=found["pruned"],
        )

    async def find_signal(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._request({"type": "find_signal", "name": name})
        return found

    async def flush(self) -> None:
        await self._request({"type": "flush"})

    async def _settlement(self, result: Any) -> tuple[str, str]:
        encode_result(result, self._codec)  # raises here if it cannot be stored
        children = [job_json.to_json(new) for new in self.children]
        request = {"type": "settlement", "result": result, "children": children}
        sql, text = await self._request(request)
        return sql, text

    def _directory(self, kind: WorkspaceKind) -> Path:
        if kind not in self._directories:
            try:
                path = self._send_request({"type": "directory", "kind": kind}).result()
            except ParentError as error:
                raise _windlass_error(error) from None
            self._directories[kind] = Path(path)
        return self._directories[kind]

    async def _request(self, message: Message) -> Any:
        try:
            return await asyncio.wrap_future(self._send_request(message))
        except ParentError as error:
            raise _windlass_error(error) from None

    def _send_request(self, message: Message) -> Future[Any]:
        with self._sending:
            if self._ended:
                raise errors.StaleLeaseError(f"this attempt of job {self.job.id} has ended")
            return self._parent.request(message)


def _windlass_error(error: ParentError) -> Exception:
    """Restore the error class if it is a Windlass error."""
    kind = getattr(errors, error.kind, None)
    if isinstance(kind, type) and issubclass(kind, WindlassError):
        return kind(error.message)
    return RuntimeError(f"{error.kind}: {error.message}")
