"""Queries of jobs: filters, and stable pagination by cursor."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2s
from string import ascii_lowercase, ascii_uppercase
from uuid import UUID

from windlass.core.clock import MAX_INSTANT, Instant
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.size_limits import check_text

MAX_PAGE = 1000
_LOWERCASE = str.maketrans(ascii_uppercase, ascii_lowercase)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """A query of jobs, newest first. A filter that is None or an empty set matches all jobs.

    A job must have all `tags`. `error` is its exact error code. `text` is part of its task, of a
    tag, or of the code, type or message of its error (if not encrypted); ASCII letters match
    case-insensitively. `created_from` is inclusive, `created_to` exclusive. With `omit_payload`,
    rows come without payload and result, which may be large.
    """

    states: frozenset[State] = frozenset()
    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    owner: str | None = None
    team: str | None = None
    tags: frozenset[str] = frozenset()
    error: str | None = None
    text: str | None = None
    worker: str | None = None
    request_id: str | None = None
    unique_key: str | None = None
    retry_of: UUID | None = None
    root_id: UUID | None = None
    flow_id: UUID | None = None
    created_from: Instant | None = None
    created_to: Instant | None = None
    limit: int = 100
    cursor: str | None = None
    omit_payload: bool = False

    def __post_init__(self) -> None:
        for name in ("queues", "tasks", "tags"):
            for text in getattr(self, name):
                check_text(name, text)
        for name in (
            "owner", "team", "error", "text", "worker", "request_id", "unique_key"
        ):  # fmt: skip
            check_text(name, getattr(self, name))
        for instant in (self.created_from, self.created_to):
            if instant is not None and not -MAX_INSTANT <= instant <= MAX_INSTANT:
                raise InvalidArgumentError(f"{instant} is not an instant between 1970 and 9999")
        if not 1 <= self.limit <= MAX_PAGE:
            raise InvalidArgumentError(
                f"limit is {self.limit}; it must be between 1 and {MAX_PAGE}"
            )


@dataclass(frozen=True, slots=True)
class Page:
    """One page of jobs. `cursor` is for the next page, None at the end; a page may be short."""

    rows: Sequence[JobRow]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """Number of matching jobs; a lower bound if `capped`."""

    number: int
    capped: bool


def matches(query: JobQuery, row: JobRow) -> bool:
    """Whether a job matches all filters."""
    return (
        (not query.states or row.state in query.states)
        and (not query.queues or row.queue in query.queues)
        and (not query.tasks or row.task in query.tasks)
        and query.tags <= set(row.tags)
        and query.owner in {None, row.owner}
        and query.team in {None, row.team}
        and query.worker in {None, row.worker}
        and query.request_id in {None, row.request_id}
        and query.unique_key in {None, row.unique_key}
        and query.retry_of in {None, row.retry_of}
        and query.root_id in {None, row.root_id}
        and query.flow_id in {None, row.flow_id}
        and (query.error is None or (row.error is not None and row.error.code == query.error))
        and (query.text is None or _contains(row, lowercase_ascii(query.text)))
        and (query.created_from is None or row.created_at >= query.created_from)
        and (query.created_to is None or row.created_at < query.created_to)
    )


def without_payload(query: JobQuery, row: JobRow) -> JobRow:
    """Return the row, without payload and result if the query omits them."""
    return replace(row, payload=b"", result=None) if query.omit_payload else row


def lowercase_ascii(text: str) -> str:
    """Lowercase A to Z only: these mappings are the same in every store."""
    return text.translate(_LOWERCASE)


def _contains(row: JobRow, text: str) -> bool:
    texts = [row.task, *row.tags]
    if row.error is not None:
        texts += [row.error.code, *row.error.searchable_text]
    return any(text in lowercase_ascii(candidate) for candidate in texts)


def fingerprint(query: JobQuery) -> str:
    """Return a fingerprint of the filters; without page size, cursor and omit_payload."""
    parts = [
        sorted(query.states), sorted(query.queues), sorted(query.tasks), sorted(query.tags),
        query.owner, query.team, query.error, query.worker, query.request_id, query.unique_key,
        str(query.retry_of), str(query.root_id), str(query.flow_id),
        query.created_from, query.created_to, query.text,
    ]  # fmt: skip
    return blake2s(json.dumps(parts).encode(), digest_size=6).hexdigest()


def encode_cursor(query: JobQuery, before: int) -> str:
    return base64.urlsafe_b64encode(f"1:{before}:{fingerprint(query)}".encode()).decode()


def decode_cursor(query: JobQuery) -> int | None:
    """Return the serial below which the page starts; None for the first page."""
    if query.cursor is None:
        return None
    try:
        text = base64.urlsafe_b64decode(query.cursor.encode()).decode()
        version, before, found_fingerprint = text.split(":")
        number = int(before)
    except (ValueError, binascii.Error):
        raise InvalidArgumentError(f"{query.cursor!r} is not a cursor of this store") from None
    if not 0 <= number < 2**63:
        raise InvalidArgumentError(f"{query.cursor!r} is not a cursor of this store")
    if version != "1" or found_fingerprint != fingerprint(query):
        raise InvalidArgumentError(
            "the cursor belongs to a query with other filters; start again without a cursor"
        )
    return number
