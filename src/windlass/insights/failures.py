"""What failed most: failed jobs by task and by what their errors say."""

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

LOOKED_AT = 2_000  # jobs, the last to fail: read with their errors, which may be 20 KiB each
SHOWN = 200  # characters of a message
_NUMBER = re.compile(r"[0-9a-fA-F-]*\d[0-9a-fA-F-]*")  # ids, too


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Jobs of one task that failed alike; type, message and job are those of the last.

    Alike are errors of one code and type whose messages begin with the same line, but for numbers.
    The key is the same whenever it is asked for.
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
    """The largest first. `looked_at` jobs were grouped; more had failed if it is `capped`."""

    groups: Sequence[FailureGroup]
    looked_at: int
    capped: bool


async def failures(
    store: Store,
    codec: Codec,
    since: Instant,
    *,
    owner: str | None = None,
    team: str | None = None,
) -> FailureGroups:
    found = await store.failures(since, LOOKED_AT, owner, team)
    alike: dict[tuple[str, str, str, str], list[tuple[FailedJob, _Words]]] = {}
    for job in found.jobs:
        words = _words(job, codec)
        same = _NUMBER.sub("#", words.message or "")  # of all of it: cut, they would end apart
        alike.setdefault((job.task, words.code, words.type or "", same), []).append((job, words))
    groups = [_group(what, jobs) for what, jobs in alike.items()]
    groups.sort(key=lambda one: (-one.count, -one.last_at, one.task, one.code))
    return FailureGroups(groups, len(found.jobs), found.capped)


@dataclass(frozen=True, slots=True)
class _Words:
    code: str
    type: str | None = None
    message: str | None = None


def _words(job: FailedJob, codec: Codec) -> _Words:
    if job.error is None:
        return _Words("")
    try:
        said: Any = codec.decode(job.error.body or b"", Purpose.ERROR)
    except (CodecError, UnicodeDecodeError):  # maintenance wrote none, or the key is not here
        said = None
    if not isinstance(said, dict):
        return _Words(job.error.code)
    kind, message = said.get("type"), said.get("message")
    lines = message.strip().splitlines() if isinstance(message, str) else []
    return _Words(
        job.error.code,
        kind if isinstance(kind, str) else None,
        lines[0] if lines else None,
    )


def _group(what: tuple[str, ...], jobs: Sequence[tuple[FailedJob, _Words]]) -> FailureGroup:
    (last, words), (first, _) = jobs[0], jobs[-1]
    return FailureGroup(
        key=sha256(json.dumps(what).encode()).hexdigest()[:24],
        task=last.task,
        code=words.code,
        type=words.type,
        message=None if words.message is None else words.message[:SHOWN],
        count=len(jobs),
        first_at=first.ended_at,
        last_at=last.ended_at,
        job_id=last.id,
        jobs=[job.id for job, _ in jobs],
    )
