"""Small versioned records that are not jobs (schedules, limits, pauses, API keys …)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from windlass.core.admission.limit import LIMIT, check_limit_name, decode_limit
from windlass.core.clock import Instant, after
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.size_limits import check_size, check_text

PAUSED = "paused"  # record kind of paused queues; the key is the queue name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored record. `version` counts its writes."""

    kind: str
    key: str
    value: bytes
    version: int = 0
    expires_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A write of a record. `expected` is the version read (0: must not exist); None overwrites.

    A repeat is recognized by its value. Processes that compete for a record must write different
    values: two equal writes both count as applied.
    """

    kind: str
    key: str
    value: bytes
    expected: int | None = None
    ttl: float | None = None

    def __post_init__(self) -> None:
        check_text("the kind of a record", self.kind)
        check_text("the key of a record", self.key)
        check_size("the record", self.value)
        if self.kind == LIMIT:  # stores read limits from these records
            _check_limit(self.key, self.value)
            if self.ttl is not None:  # its expiry would not trigger admission of waiting jobs
                raise InvalidArgumentError("a limit cannot have a ttl; delete it instead")
        if self.ttl is not None and not 0 < self.ttl <= MAX_DELAY:
            raise InvalidArgumentError(
                f"ttl is {self.ttl} s; it must be positive and at most 10 years"
            )


def _check_limit(name: str, data: bytes) -> None:
    check_limit_name(name)
    try:
        limit = decode_limit(data)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(f"the limit of {name} is malformed: {error}") from None
    if limit is None:
        raise InvalidArgumentError(f"the record of {name} sets no limit; delete the record instead")
    fields = json.loads(data)
    if any(fields.get(part) != value for part, value in limit.encode().items()):
        raise InvalidArgumentError(
            f"the limit of {name} is malformed: the first fields must be the limit, {limit}"
        )


@dataclass(frozen=True, slots=True)
class PutResult:
    """Result of one put: whether it applied, and the record afterwards."""

    applied: bool
    entry: Entry | None


def check_keys(kind: str, keys: Sequence[str]) -> None:
    for text in (kind, *keys):
        check_text("the kind or key of a record", text)


def unexpired(entry: Entry | None, now: Instant) -> Entry | None:
    """Return the record, unless it has expired."""
    if entry is None or (entry.expires_at is not None and entry.expires_at <= now):
        return None
    return entry


def apply_put(request: Put, current: Entry | None, now: Instant) -> PutResult:
    """Return the result of a write to an unexpired record, or to none.

    A repeat, recognized by its value, keeps the version and renews the ttl.
    """
    version = current.version if current else 0
    expires = after(now, request.ttl) if request.ttl is not None else None
    if (
        current is not None
        and current.value == request.value
        and request.expected in {None, version - 1}
    ):
        return PutResult(applied=True, entry=replace(current, expires_at=expires))
    if request.expected not in {None, version}:
        return PutResult(applied=False, entry=current)
    entry = Entry(
        kind=request.kind,
        key=request.key,
        value=request.value,
        version=version + 1,
        expires_at=expires,
    )
    return PutResult(applied=True, entry=entry)
