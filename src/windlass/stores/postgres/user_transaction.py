"""Jobs in the caller's own transaction, by the functions of migration 2."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import Enqueued, EnqueueStatus
from windlass.core.decisions.transition import Transition
from windlass.core.errors import ConflictError, InvalidArgumentError, RequestError
from windlass.core.job.dependency import OnParent
from windlass.core.job.row import DEFAULT_POLICY, JobRow, NewJob
from windlass.stores.borrowed_connection import Borrowed, meant
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, PostgresConfig, connect
from windlass.stores.postgres.errors import FOREIGN, translate
from windlass.stores.postgres.writes import enqueue_jobs
from windlass.stores.sql import query_file

Now: TypeAlias = Callable[[], Instant | None]
Statements: TypeAlias = Generator[tuple[str, str], list[str], list[Enqueued]]
"""What is to be run, with its text; gets the answers, and returns what became of the jobs."""
MOST_TOGETHER = 192 * 1024 * 1024  # bytes: the server takes no JSON of more than 256 MiB
_UUIDS = frozenset({"id", "root_id", "token", "retry_of", "retried_as", "flow_id"})
_BYTES = frozenset({"payload", "result", "digest", "error_body"})


@dataclass(frozen=True, slots=True)
class Queries:
    enqueue: str
    together: str
    standing: str
    succeed: str
    place: str


SQL = query_file.load("windlass.stores.postgres", Queries, "within.sql")


class Place:
    """Which data the app's URL leads to, asked once: so that jobs never go to another database."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._known: str | None = None

    def get(self) -> str:
        if self._known is None:
            with ThreadPoolExecutor(1) as apart:  # an event loop may run on this thread
                return apart.submit(asyncio.run, self.aget()).result()
        return self._known

    async def learn(self, connection: Connection) -> None:
        if self._known is None:
            self._known = str(await connection.fetchval(SQL.place))

    async def aget(self) -> str:
        if self._known is None:
            connection = await connect(self._config)
            try:
                await self.learn(connection)
            except FOREIGN as error:
                raise translate(error, self._config.where) from error
            finally:
                await connection.close()
        assert self._known is not None
        return self._known


class Within:
    """Enqueues through a connection of the caller's, until the block around it ends."""

    def __init__(self, borrowed: Borrowed, place: Place, now: Now) -> None:
        self._borrowed = borrowed
        self._place = place
        self._now = now
        self._over = False

    def end(self) -> None:
        """Whoever was started inside the block enqueues nothing more through it."""
        self._over = True

    def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        statements = self._enqueue(jobs, self._place.get(), together=together)
        try:
            wanted = next(statements)
            while True:
                wanted = statements.send(self._borrowed.call(*wanted))
        except StopIteration as done:
            return list(done.value)

    async def aenqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        statements = self._enqueue(jobs, await self._place.aget(), together=together)
        try:
            wanted = next(statements)
            while True:
                wanted = statements.send(await self._borrowed.acall(*wanted))
        except StopIteration as done:
            return list(done.value)

    def _enqueue(self, jobs: Sequence[NewJob], place: str, *, together: bool) -> Statements:
        if self._over:
            raise ConflictError("the block of `within` is over; enqueue inside it, or without it")
        answers = [_check(new) for new in jobs]
        wrong = next((answer.error for answer in answers if answer is not None), None)
        if together and wrong is not None:
            return _none(jobs, wrong)
        sound = [index for index, answer in enumerate(answers) if answer is None]
        texts = [json.dumps(_asked(jobs[index])) for index in sound]
        sql = SQL.together if together else SQL.enqueue
        told: list[Any] = []
        for piece in _in_one(texts) if together else _in_pieces(texts):
            now = json.dumps(self._now())
            given = f'{{"jobs":[{",".join(piece)}],"now":{now},"place":{json.dumps(place)}}}'
            told += map(json.loads, (yield sql, given))
        if together and told and "refused" in told[0]:
            return _none(jobs, _meant(told[0]))
        others = [
            answer["job_id"]
            for index, answer in zip(sound, told, strict=True)
            if answer["job_id"] and (answer["n"] is None or _not_as_asked(jobs[index], answer))
        ]
        found = {}
        if others:
            for text in (yield SQL.standing, json.dumps(others)):
                row = _row(json.loads(text))
                found[str(row.id)] = row
        for index, answer in zip(sound, told, strict=True):
            answers[index] = _answer(jobs[index], answer, found)
        return [answer for answer in answers if answer is not None]


def _in_pieces(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for piece in rows.portions([(text,) for text in texts], 0):
        yield [text for (text,) in piece]


def _in_one(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Jobs that come together do so in one statement, which takes back what it wrote in vain."""
    size = sum(map(len, texts))
    if size > MOST_TOGETHER:
        raise InvalidArgumentError(
            f"the {len(texts)} jobs take {size // 2**20} MiB, and in a transaction of yours jobs "
            f"that come together may take {MOST_TOGETHER // 2**20}; keep the data in an object "
            "store or a file and pass its address"
        )
    if texts:
        yield texts


def _none(jobs: Sequence[NewJob], error: RequestError) -> list[Enqueued]:
    return [Enqueued(EnqueueStatus.REFUSED, new, error=error) for new in jobs]


def _meant(told: dict[str, Any]) -> RequestError:
    error = meant(told["code"], told["refused"])
    return error if isinstance(error, RequestError) else InvalidArgumentError(told["refused"])


def settlement(wish: Transition, now: Instant | None, place: str) -> tuple[str, str]:
    """A success as a statement for a connection of the task's own, and its text."""
    told = {
        "id": str(wish.job_id),
        "fence": wish.fence,
        "token": str(wish.token),
        "result": _base64(wish.result),
        "children": [_asked(child) for child in wish.children],
    }
    return SQL.succeed, json.dumps({"wish": told, "now": now, "place": place})


def _check(new: NewJob) -> Enqueued | None:
    if new.retry_of is not None:
        error = InvalidArgumentError("a retry cannot join a transaction; use job.retry()")
        return Enqueued(EnqueueStatus.REFUSED, new, error=error)
    return enqueue_jobs.check(new)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _asked(new: NewJob) -> dict[str, Any]:
    """An item of `windlass_enqueue`; what is as usual is left out."""
    item = {
        "id": str(new.id),
        "task": new.task,
        "queue": new.queue,
        "payload_base64": _base64(new.payload),
        "priority": new.priority or None,
        "delay": new.delay or None,
        "run_at": new.run_at,
        "hold": new.hold or None,
        "expires_in": new.expires_in,
        "expires_at": new.expires_at,
        "policy": None if new.policy is DEFAULT_POLICY else json.loads(new.policy.encode()),
        "lease": new.lease,
        "owner": new.owner or None,
        "team": new.team,
        "tags": list(new.tags) or None,
        "headers": dict(new.headers) or None,
        "request_id": new.request_id,
        "digest": _base64(new.digest),
        "unique_key": new.unique_key,
        "debounce": new.debounce or None,
        "depends_on": [str(parent) for parent in new.depends_on] or None,
        "on_parent": None if new.on_parent is OnParent.CANCEL else new.on_parent.value,
        "flow_id": None if new.flow_id is None else str(new.flow_id),
        "limit_key": new.limit_key,
    }
    return {name: value for name, value in item.items() if value is not None}


def _not_as_asked(new: NewJob, told: dict[str, Any]) -> bool:
    """Whether how it stands depends on others."""
    return bool(new.depends_on) or new.limit_key is not None or told["gated"]


def _answer(new: NewJob, told: dict[str, Any], found: dict[str, JobRow]) -> Enqueued:
    status = EnqueueStatus(told["status"])
    if told["n"] is not None and not _not_as_asked(new, told):
        return Enqueued(status, new, told["created_at"], told["n"])
    error = ConflictError(told["error"]) if told["error"] else None
    return Enqueued(status, new, existing=found.get(told["job_id"]), error=error)


def _row(told: dict[str, Any]) -> JobRow:
    """From JSON, in the order of the table's columns."""
    return rows.job_row([_value(name, value) for name, value in told.items()])


def _value(name: str, value: Any) -> Any:
    if value is not None and name in _UUIDS:
        return UUID(value)
    if value is not None and name in _BYTES:
        return bytes.fromhex(value[2:])  # \x…
    return value
