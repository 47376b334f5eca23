"""Small data beside the jobs: one family of versioned records (schedules, pauses, keys …)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from windlass.core.admission.gates import LIMIT, check_name, limit_of
from windlass.core.clock import Instant, after
from windlass.core.decisions.retry import MAX_DELAY
from windlass.core.errors import InvalidArgumentError
from windlass.core.sizes import check_size, check_text

PAUSED = "paused"  # the kind that marks a paused queue, by its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record. `version` counts its writes."""

    kind: str
    key: str
    value: bytes
    version: int = 0
    expires_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Write a record. `expected` is the version seen (0: it must not exist); None overwrites.

    A repeat is known by its value. Whoever competes for a record puts their own name in it: two who
    write the same have both written it.
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
        if self.kind == LIMIT:  # which stores read, whoever wrote it
            _check_limit(self.key, self.value)
            if self.ttl is not None:  # nobody would look at its gates
                raise InvalidArgumentError("a limit has no ttl: it stays until it is deleted")
        if self.ttl is not None and not 0 < self.ttl <= MAX_DELAY:
            raise InvalidArgumentError(f"ttl is {self.ttl} s; it must be positive")


def _check_limit(name: str, data: bytes) -> None:
    check_name(name)
    try:
        limit = limit_of(data)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(f"the limit of {name} cannot be read: {error}") from None
    if limit is None:
        raise InvalidArgumentError(f"the record of {name} sets no limit; delete it instead")
    facts = json.loads(data)
    if any(facts.get(part) != value for part, value in limit.encode().items()):
        raise InvalidArgumentError(
            f"the limit of {name} cannot be read: what holds, {limit}, does not stand first in it"
        )


@dataclass(frozen=True, slots=True)
class PutAnswer:
    """Whether it is written, and what stands there now."""

    applied: bool
    entry: Entry | None


def check_keys(kind: str, keys: Sequence[str]) -> None:
    for text in (kind, *keys):
        check_text("the name of a record", text)


def alive(entry: Entry | None, now: Instant) -> Entry | None:
    if entry is None or (entry.expires_at is not None and entry.expires_at <= now):
        return None
    return entry


def put(wish: Put, current: Entry | None, now: Instant) -> PutAnswer:
    """What a write does to a living record (or none).

    A repeat, known by its value, keeps the version and begins the lifetime anew.
    """
    version = current.version if current else 0
    expires = after(now, wish.ttl) if wish.ttl is not None else None
    if current is not None and current.value == wish.value and wish.expected in {None, version - 1}:
        return PutAnswer(applied=True, entry=replace(current, expires_at=expires))
    if wish.expected not in {None, version}:
        return PutAnswer(applied=False, entry=current)
    entry = Entry(
        kind=wish.kind, key=wish.key, value=wish.value, version=version + 1, expires_at=expires
    )
    return PutAnswer(applied=True, entry=entry)
