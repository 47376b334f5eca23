"""Request splitter: sends a large call in several requests that the server accepts, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from windlass.core.decisions.enqueue import EnqueueResult, EnqueueStatus
from windlass.core.decisions.transition import ApplyResult, Status
from windlass.core.errors import TooLargeError
from windlass.core.job.new_job import NewJob
from windlass.stores import wire_format
from windlass.stores.http.transport import Transport

T = TypeVar("T")
Part = tuple[Sequence[T], bytes | None]
SAFE_BODY = 1024 * 1024  # bytes that every server accepts; beyond it, its max_body is read
_ARGUMENTS = {
    "enqueue": "jobs",
    "apply": "requests",
    "record": "attempt_records",
    "put_records": "puts",
}


class RequestSplitter:
    """Sends calls whose items contain data of users or tasks, which may be large."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool) -> list[EnqueueResult]:
        """Enqueue jobs, in several requests if needed. A job that is too large is refused alone."""
        results: list[EnqueueResult] = []
        sendable = [wire_format.with_storable_backoff(new) for new in jobs]
        for part, body in await self._parts("enqueue", sendable, atomic=atomic):
            part_jobs = jobs[len(results) : len(results) + len(part)]
            if body is None:
                error = _too_large()
                results += [
                    EnqueueResult(EnqueueStatus.REFUSED, new, error=error) for new in part_jobs
                ]
            else:
                response = await self._transport.call("enqueue", body)
                results += wire_format.enqueue_results(
                    part_jobs, wire_format.decode_response("enqueue", response.content)
                )
        return results

    async def send(self, method: str, items: Sequence[Any]) -> list[ApplyResult]:
        results: list[ApplyResult] = []
        for part, body in await self._parts(method, items):
            if body is None:
                results += [ApplyResult(Status.REFUSED, error=_too_large()) for _ in part]
            else:
                response = await self._transport.call(method, body)
                results += wire_format.decode_response(method, response.content)
        return results

    async def send_strict(self, method: str, items: Sequence[Any]) -> list[Any]:
        """Send items whose results cannot refuse; raise TooLargeError if one is too large."""
        results: list[Any] = []
        for _, body in await self._parts(method, items):
            if body is None:
                raise _too_large()
            response = await self._transport.call(method, body)
            results += wire_format.decode_response(method, response.content)
        return results

    async def _parts(self, method: str, items: Sequence[T], **arguments: Any) -> list[Part[T]]:
        """Split the items into parts with request bodies; the body of a part too large is None."""
        if not items:
            return []
        body = self._body(method, items, arguments)
        if len(body) <= SAFE_BODY:
            return [(items, body)]
        return self._split(method, items, arguments, (await self._transport.hello()).max_body)

    def _split(
        self, method: str, items: Sequence[T], arguments: dict[str, Any], max_body: int
    ) -> list[Part[T]]:
        body = self._body(method, items, arguments)
        if len(body) <= max_body:
            return [(items, body)]
        if len(items) == 1 or arguments.get("atomic"):
            return [(items, None)]
        half = len(items) // 2
        return [
            *self._split(method, items[:half], arguments, max_body),
            *self._split(method, items[half:], arguments, max_body),
        ]

    @staticmethod
    def _body(method: str, items: Sequence[Any], arguments: dict[str, Any]) -> bytes:
        return wire_format.request_schema(method).dump(**{_ARGUMENTS[method]: items}, **arguments)


def _too_large() -> TooLargeError:
    return TooLargeError(
        "larger than the server's maximum request size; keep the data in an object store or a "
        "file and pass its address, or raise max_body in the server's ServerConfig"
    )
