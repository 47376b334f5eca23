"""Asking for jobs: filters, and pages that stay true while jobs come and go."""

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
from windlass.core.sizes import check_text

MAX_PAGE = 1000
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which jobs, newest first. Every filter narrows; an empty one lets all through.

    All of `tags` must be there. `error` is the code of its error, whole. `text` is part of its
    task, a tag, or what its error says in the clear; a to z are as good as A to Z. `created_from`
    is inclusive, `created_to` is not. With `bare`, jobs come without payload and result, which may
    be large.
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
    bare: bool = False

    def __post_init__(self) -> None:
        for text in (*self.queues, *self.tasks, *self.tags, self.owner, self.team, self.error,
                     self.text, self.worker, self.request_id, self.unique_key):  # fmt: skip
            check_text("a filter", text)
        for instant in (self.created_from, self.created_to):
            if instant is not None and not -MAX_INSTANT <= instant <= MAX_INSTANT:
                raise InvalidArgumentError(f"{instant} is not an instant between 1970 and 9999")
        if not 1 <= self.limit <= MAX_PAGE:
            raise InvalidArgumentError(
                f"limit is {self.limit}; it must lie between 1 and {MAX_PAGE}"
            )


@dataclass(frozen=True, slots=True)
class Page:
    """`cursor` leads to the next page, None is the end; a page before it may be short or empty."""

    rows: Sequence[JobRow]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs match; at least so many if it is `capped`."""

    number: int
    capped: bool


def matches(query: Query, row: JobRow) -> bool:
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
        and (query.text is None or _says(row, folded(query.text)))
        and (query.created_from is None or row.created_at >= query.created_from)
        and (query.created_to is None or row.created_at < query.created_to)
    )


def shown(query: Query, row: JobRow) -> JobRow:
    """As much of the job as was asked for."""
    return replace(row, payload=b"", result=None) if query.bare else row


def folded(text: str) -> str:
    """With small letters for A to Z, and no others: of those, every store knows the same pairs."""
    return text.translate(_SMALL)


def _says(row: JobRow, text: str) -> bool:
    words = [row.task, *row.tags]
    if row.error is not None:
        words += [row.error.code, *row.error.words]
    return any(text in folded(word) for word in words)


def fingerprint(query: Query) -> str:
    """Tells two sets of filters apart; page size, cursor, and what is told do not count."""
    parts = [
        sorted(query.states), sorted(query.queues), sorted(query.tasks), sorted(query.tags),
        query.owner, query.team, query.error, query.worker, query.request_id, query.unique_key,
        str(query.retry_of), str(query.root_id), str(query.flow_id),
        query.created_from, query.created_to,
        *([query.text] if query.text is not None else []),
    ]  # fmt: skip
    return blake2s(json.dumps(parts).encode(), digest_size=6).hexdigest()


def encode_cursor(query: Query, before: int) -> str:
    return base64.urlsafe_b64encode(f"1:{before}:{fingerprint(query)}".encode()).decode()


def decode_cursor(query: Query) -> int | None:
    """The serial below which the page begins; None at the start."""
    if query.cursor is None:
        return None
    try:
        text = base64.urlsafe_b64decode(query.cursor.encode()).decode()
        version, before, print_ = text.split(":")
        number = int(before)
    except (ValueError, binascii.Error):
        raise InvalidArgumentError(f"{query.cursor!r} is not a cursor of this store") from None
    if not 0 <= number < 2**63:
        raise InvalidArgumentError(f"{query.cursor!r} is not a cursor of this store")
    if version != "1" or print_ != fingerprint(query):
        raise InvalidArgumentError(
            "the cursor belongs to a search with other filters; start again without a cursor"
        )
    return number
