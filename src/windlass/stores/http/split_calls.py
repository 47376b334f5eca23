"""Many items in messages that a server takes: a call that is too large goes in parts, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from windlass.core.decisions.enqueue import Enqueued, EnqueueStatus
from windlass.core.decisions.transition import Answer, Status
from windlass.core.errors import TooLargeError
from windlass.core.job.row import NewJob
from windlass.stores import rpc
from windlass.stores.http.transport import Line

T = TypeVar("T")
Part = tuple[Sequence[T], bytes | None]
SMALL = 1024 * 1024  # bytes that every server takes; for more it is asked how much that is
_NAMES = {
    "enqueue": "jobs",
    "apply": "transitions",
    "record": "sayings",
    "cancel": "requests",
    "signal": "signals",
    "put_records": "puts",
}


class Parcels:
    """For the verbs that carry what people and tasks wrote, which may be large."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool) -> list[Enqueued]:
        """All together, or in parts; one that is too large alone is refused alone."""
        found: list[Enqueued] = []
        sent = [rpc.sendable(new) for new in jobs]
        for part, body in await self._parts("enqueue", sent, together=together):
            mine = jobs[len(found) : len(found) + len(part)]
            if body is None:
                error = _too_large()
                found += [Enqueued(EnqueueStatus.REFUSED, new, error=error) for new in mine]
            else:
                response = await self._line.call("enqueue", body)
                found += rpc.enqueued(mine, rpc.hear("enqueue", response.content))
        return found

    async def answers(self, verb: str, items: Sequence[Any]) -> list[Answer]:
        found: list[Answer] = []
        for part, body in await self._parts(verb, items):
            if body is None:
                found += [Answer(Status.REFUSED, error=_too_large()) for _ in part]
            else:
                response = await self._line.call(verb, body)
                found += rpc.hear(verb, response.content)
        return found

    async def items(self, verb: str, items: Sequence[Any]) -> list[Any]:
        """The same for a verb whose answers cannot refuse."""
        found: list[Any] = []
        for _, body in await self._parts(verb, items):
            if body is None:
                raise _too_large()
            response = await self._line.call(verb, body)
            found += rpc.hear(verb, response.content)
        return found

    async def _parts(self, verb: str, items: Sequence[T], **more: Any) -> list[Part[T]]:
        """The items in order, with the message of each part; None is one that is too large."""
        if not items:
            return []
        body = self._body(verb, items, more)
        if len(body) <= SMALL:
            return [(items, body)]
        return self._split(verb, items, more, (await self._line.hello()).max_body)

    def _split(
        self, verb: str, items: Sequence[T], more: dict[str, Any], most: int
    ) -> list[Part[T]]:
        body = self._body(verb, items, more)
        if len(body) <= most:
            return [(items, body)]
        if len(items) == 1 or more.get("together"):
            return [(items, None)]
        half = len(items) // 2
        return [
            *self._split(verb, items[:half], more, most),
            *self._split(verb, items[half:], more, most),
        ]

    @staticmethod
    def _body(verb: str, items: Sequence[Any], more: dict[str, Any]) -> bytes:
        return rpc.asked(verb).dump(**{_NAMES[verb]: items}, **more)


def _too_large() -> TooLargeError:
    return TooLargeError(
        "it is larger than a request to the server may be; keep the data in an object store or a "
        "file and pass its address, or raise max_body in the server's ServerConfig"
    )
