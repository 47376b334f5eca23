"""Failure groups: failed jobs grouped by task and error."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.codec import Codec, Purpose
from windlass.core.errors import CodecError
from windlass.core.job.failure import FailedJob
from windlass.store import Store

MAX_SCANNED = 2_000  # newest failed jobs; each error may have 20 KiB
MAX_MESSAGE = 200  # characters
_NUMBER = re.compile(r"[0-9a-fA-F-]*\d[0-9a-fA-F-]*")  # matches ids, too


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failed jobs of one task with the same error.

    Errors are the same if code, type and the first line of the message are equal, apart from
    numbers and ids. `type`, `message` and `job_id` are those of the newest job. `key` does not
    change when jobs are added.
    """

    key: str
    task: str
    code: str
    type: str | None
    message: str | None
    count: int
    first_at: Instant
    last_at: Instant
    job_id: UUID
    jobs: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """Failure groups, the largest first, of `scanned` jobs; `capped` if more jobs failed."""

    groups: Sequence[FailureGroup]
    scanned: int
    capped: bool


async def group_failures(
    store: Store,
    codec: Codec,
    since: Instant,
    *,
    owner: str | None = None,
    team: str | None = None,
) -> FailureGroups:
    """Group the jobs that failed since an instant."""
    found = await store.insights.failures(since, MAX_SCANNED, owner, team)
    groups_by_error: dict[tuple[str, str, str, str], list[tuple[FailedJob, _ErrorText]]] = {}
    for job in found.jobs:
        error = _error_text(job, codec)
        # The whole first line, since a shortened one could end inside a number.
        pattern = _NUMBER.sub("#", error.message or "")
        key = (job.task, error.code, error.type or "", pattern)
        groups_by_error.setdefault(key, []).append((job, error))
    groups = [_group(key, jobs) for key, jobs in groups_by_error.items()]
    groups.sort(key=lambda group: (-group.count, -group.last_at, group.task, group.code))
    return FailureGroups(groups, len(found.jobs), found.capped)


@dataclass(frozen=True, slots=True)
class _ErrorText:
    code: str
    type: str | None = None
    message: str | None = None


def _error_text(job: FailedJob, codec: Codec) -> _ErrorText:
    if job.error is None:
        return _ErrorText("")
    try:
        body: Any = codec.decode(job.error.body or b"", Purpose.ERROR)
    except (CodecError, UnicodeDecodeError):  # maintenance wrote no body, or the key is missing
        body = None
    if not isinstance(body, dict):
        return _ErrorText(job.error.code)
    kind, message = body.get("type"), body.get("message")
    lines = message.strip().splitlines() if isinstance(message, str) else []
    return _ErrorText(
        job.error.code,
        kind if isinstance(kind, str) else None,
        lines[0] if lines else None,
    )


def _group(key: tuple[str, ...], jobs: Sequence[tuple[FailedJob, _ErrorText]]) -> FailureGroup:
    (last, error), (first, _) = jobs[0], jobs[-1]
    return FailureGroup(
        key=sha256(json.dumps(key).encode()).hexdigest()[:24],
        task=last.task,
        code=error.code,
        type=error.type,
        message=None if error.message is None else error.message[:MAX_MESSAGE],
        count=len(jobs),
        first_at=first.ended_at,
        last_at=last.ended_at,
        job_id=last.id,
        jobs=[job.id for job, _ in jobs],
    )
