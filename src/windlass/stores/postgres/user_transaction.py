"""Enqueue and settle in a transaction of the caller, by SQL functions of migration 2."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult, EnqueueStatus
from windlass.core.decisions.transition import Transition
from windlass.core.errors import ConflictError, InvalidArgumentError, RequestError
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.job.row import JobRow
from windlass.stores.borrowed_connection import BorrowedConnection, sqlstate_error
from windlass.stores.postgres import rows
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection, connect
from windlass.stores.postgres.errors import DRIVER_ERRORS, translate
from windlass.stores.postgres.writes import enqueue_jobs
from windlass.stores.sql import query_file
from windlass.stores.sql.job_columns import JOB_COLUMNS, Coding

Now: TypeAlias = Callable[[], Instant | None]
Steps: TypeAlias = Generator[tuple[str, str], list[str], list[EnqueueResult]]
"""Yields a statement with its parameter, receives the result texts, returns the results."""
MAX_ATOMIC_BYTES = 192 * 1024 * 1024  # the server accepts at most 256 MiB of JSON
# Fields of a request that an item of `windlass_enqueue` has too, and their defaults.
_DEFAULTS = {
    item.name: getattr(NewJob(id=UUID(int=0), task=""), item.name)
    for item in fields(NewJob)
    if item.name not in {"id", "payload", "retry_of", "resume"}
}


@dataclass(frozen=True, slots=True)
class UserTransactionQueries:
    enqueue: str
    enqueue_atomic: str
    job_rows: str
    succeed: str
    database_id: str


SQL = query_file.load("windlass.stores.postgres", UserTransactionQueries, "user_transaction.sql")


class DatabaseId:
    """Identity of the store's database, read once: jobs must not go to another database."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._value: str | None = None

    def get(self) -> str:
        if self._value is None:
            with ThreadPoolExecutor(1) as executor:  # an event loop may run on this thread
                return executor.submit(asyncio.run, self.aget()).result()
        return self._value

    async def load(self, connection: Connection) -> None:
        if self._value is None:
            self._value = str(await connection.fetchval(SQL.database_id))

    async def aget(self) -> str:
        if self._value is None:
            connection = await connect(self._config)
            try:
                await self.load(connection)
            except DRIVER_ERRORS as error:
                raise translate(error, self._config.where) from error
            finally:
                await connection.close()
        assert self._value is not None
        return self._value


class PostgresEnqueuer:
    """Enqueues through a connection of the caller, until the `within` block ends."""

    def __init__(self, borrowed: BorrowedConnection, database_id: DatabaseId, now: Now) -> None:
        self._borrowed = borrowed
        self._database_id = database_id
        self._now = now
        self._closed = False

    def end(self) -> None:
        """Refuse further calls, for example of tasks that were started inside the block."""
        self._closed = True

    def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        steps = self._enqueue(jobs, self._database_id.get(), atomic=atomic)
        try:
            statement = next(steps)
            while True:
                statement = steps.send(self._borrowed.call(*statement))
        except StopIteration as done:
            return list(done.value)

    async def aenqueue(
        self, jobs: Sequence[NewJob], *, atomic: bool = False
    ) -> list[EnqueueResult]:
        steps = self._enqueue(jobs, await self._database_id.aget(), atomic=atomic)
        try:
            statement = next(steps)
            while True:
                statement = steps.send(await self._borrowed.acall(*statement))
        except StopIteration as done:
            return list(done.value)

    def _enqueue(self, jobs: Sequence[NewJob], database_id: str, *, atomic: bool) -> Steps:
        if self._closed:
            raise ConflictError("the `within` block has ended; enqueue inside it, or without it")
        results = [_check(new) for new in jobs]
        error = next((result.error for result in results if result is not None), None)
        if atomic and error is not None:
            return _refuse_all(jobs, error)
        valid = [index for index, result in enumerate(results) if result is None]
        items = [json.dumps(_item(jobs[index])) for index in valid]
        sql = SQL.enqueue_atomic if atomic else SQL.enqueue
        item_results: list[Any] = []
        database = json.dumps(database_id)
        for chunk in _one_chunk(items) if atomic else _chunks(items):
            now = json.dumps(self._now())
            argument = f'{{"jobs":[{",".join(chunk)}],"now":{now},"database_id":{database}}}'
            item_results += map(json.loads, (yield sql, argument))
        if atomic and item_results and "refused" in item_results[0]:
            return _refuse_all(jobs, _refusal(item_results[0]))
        others = [
            item_result["job_id"]
            for index, item_result in zip(valid, item_results, strict=True)
            if item_result["job_id"]
            and (item_result["n"] is None or _state_depends_on_others(jobs[index], item_result))
        ]
        found = {}
        if others:
            for text in (yield SQL.job_rows, json.dumps(others)):
                row = _row(json.loads(text))
                found[str(row.id)] = row
        for index, item_result in zip(valid, item_results, strict=True):
            results[index] = _result(jobs[index], item_result, found)
        return [result for result in results if result is not None]


def _chunks(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for chunk in rows.chunks([(item,) for item in items], 0):
        yield [item for (item,) in chunk]


def _one_chunk(items: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return all items for one statement, which rolls back its own writes after a conflict."""
    size = sum(map(len, items))
    if size > MAX_ATOMIC_BYTES:
        raise InvalidArgumentError(
            f"the {len(items)} jobs take {size // 2**20} MiB; jobs enqueued together in your own "
            f"transaction may take at most {MAX_ATOMIC_BYTES // 2**20} MiB. Keep the data in an "
            "object store or a file and pass its address"
        )
    if items:
        yield items


def _refuse_all(jobs: Sequence[NewJob], error: RequestError) -> list[EnqueueResult]:
    return [EnqueueResult(EnqueueStatus.REFUSED, new, error=error) for new in jobs]


def _refusal(item_result: dict[str, Any]) -> RequestError:
    error = sqlstate_error(item_result["code"], item_result["refused"])
    return (
        error if isinstance(error, RequestError) else InvalidArgumentError(item_result["refused"])
    )


def settlement(transition: Transition, now: Instant | None, database_id: str) -> tuple[str, str]:
    """Return the statement that settles a success on the task's connection, and its parameter."""
    values = {
        "id": str(transition.job_id),
        "fence": transition.fence,
        "token": str(transition.token),
        "result": _base64(transition.result),
        "children": [_item(child) for child in transition.children],
    }
    return SQL.succeed, json.dumps({"transition": values, "now": now, "database_id": database_id})


def _check(new: NewJob) -> EnqueueResult | None:
    if new.retry_of is not None:
        error = InvalidArgumentError("a retry cannot join a transaction; use job.retry()")
        return EnqueueResult(EnqueueStatus.REFUSED, new, error=error)
    return enqueue_jobs.check(new)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _item(new: NewJob) -> dict[str, Any]:
    """Return the item of `windlass_enqueue` for a job, without default values."""
    values = {name: getattr(new, name) for name in _DEFAULTS}
    return {
        "id": str(new.id),
        "payload_base64": _base64(new.payload),
        **{name: _plain(value) for name, value in values.items() if value != _DEFAULTS[name]},
    }


def _plain(value: Any) -> Any:
    """Return a value of a request for JSON."""
    match value:
        case UUID():
            return str(value)
        case bytes():
            return _base64(value)
        case Policy():
            return json.loads(value.encode())
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return dict(value)
        case _:
            return value


def _state_depends_on_others(new: NewJob, item_result: dict[str, Any]) -> bool:
    """Whether the state of the new job depends on other jobs or gates, so its row must be read."""
    return bool(new.depends_on) or new.limit_key is not None or item_result["gated"]


def _result(new: NewJob, item_result: dict[str, Any], found: dict[str, JobRow]) -> EnqueueResult:
    status = EnqueueStatus(item_result["status"])
    if item_result["n"] is not None and not _state_depends_on_others(new, item_result):
        return EnqueueResult(status, new, item_result["created_at"], item_result["n"])
    error = ConflictError(item_result["error"]) if item_result["error"] else None
    return EnqueueResult(status, new, existing=found.get(item_result["job_id"]), error=error)


def _row(values: dict[str, Any]) -> JobRow:
    """Convert a JSON row."""
    return rows.job_row([_value(column.coding, values[column.name]) for column in JOB_COLUMNS])


def _value(coding: Coding, value: Any) -> Any:
    if value is not None and coding is Coding.UUID:
        return UUID(value)
    if value is not None and coding is Coding.BYTES:
        return bytes.fromhex(value[2:])  # \x…
    return value
