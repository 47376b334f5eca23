"""Schedules: jobs that come to be by themselves, and which of their ticks are to be jobs now.

A tick is an instant at which a schedule makes a job. Its job's id is made of the schedule's id and
that instant: whoever sees the tick enqueues the same job, so no leader is needed. A mark says how
far the ticks have become jobs; it moves after they have (docs/design/decisions/0016).
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from itertools import count, islice, takewhile
from typing import Any
from uuid import UUID, uuid5

from windlass.core.clock import MAX_INSTANT, MINUTE, SECOND, Instant, to_datetime
from windlass.core.decisions.retry import Policy
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.row import NewJob, check
from windlass.core.sizes import check_text

SCHEDULE = "schedule"  # the kind of records that say what is to be done; the key is the name
MARK = "schedule-mark"  # the kind of those that say how far it is done; the key is the id
NAME_HEADER, TICK_HEADER = "schedule", "schedule-tick"  # of a job that a schedule made
ON_TIME = MINUTE  # a tick that nobody saw for longer was missed
BATCH = 100  # ticks of a schedule that become jobs in one go
NEVER: Instant = MAX_INSTANT
_HOUR = 60 * MINUTE
Ticks = Callable[[Instant], Iterator[Instant]]  # all beyond an instant, in order

# What a schedule's jobs share. Any other field of a job speaks of one job only.
_SHARED = (
    "task", "queue", "payload", "priority", "delay", "hold", "expires_in", "policy", "lease",
    "owner", "team", "tags", "headers", "unique_key", "debounce", "limit_key",
)  # fmt: skip


class Missed(StrEnum):
    """What becomes of ticks that no worker saw within a minute."""

    SKIP = "skip"  # nothing
    LAST = "last"  # the newest becomes a job, unless one that is on time stands for it
    ALL = "all"  # each becomes a job, the oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`job` is what each tick makes, but for its id. Either `cron` or `every`, in microseconds.

    Ticks lie beyond `since`; intervals count from `anchor`. `declared` is the fingerprint of the
    declaration in code that wrote it last, None if it was made at run time.
    """

    id: UUID
    name: str
    job: NewJob
    cron: str | None = None
    every: int | None = None
    tz: str = "UTC"
    missed: Missed = Missed.LAST
    paused: bool = False
    anchor: Instant = 0
    since: Instant = 0
    declared: str | None = None

    @property
    def timing(self) -> tuple[str | None, int | None, str]:
        return self.cron, self.every, self.tz

    def encode(self) -> bytes:
        shared = {name: getattr(self.job, name) for name in _SHARED}
        shared["payload"] = base64.b64encode(self.job.payload).decode()
        shared["policy"] = self.job.policy.encode()
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(
            {**own, "id": str(self.id), "job": shared}, separators=(",", ":")
        ).encode()

    @staticmethod
    def decode(data: bytes) -> Schedule:
        """A newer version may say more than this one understands."""
        facts = json.loads(data)
        known: dict[str, Any] = {f.name: facts[f.name] for f in fields(Schedule) if f.name in facts}
        shared = {name: facts["job"][name] for name in _SHARED if name in facts["job"]}
        shared |= {
            "id": UUID(facts["id"]),
            "payload": base64.b64decode(shared["payload"]),
            "policy": Policy.decode(shared["policy"]),
            "tags": tuple(shared["tags"]),
        }
        known |= {"id": shared["id"], "job": NewJob(**shared), "missed": Missed(facts["missed"])}
        return Schedule(**known)


@dataclass(frozen=True, slots=True)
class Mark:
    """All ticks up to `tick` have been seen to, of a schedule whose ticks began at `since`."""

    since: Instant
    tick: Instant

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Mark:
        facts = json.loads(data)
        return Mark(facts["since"], facts["tick"])


@dataclass(frozen=True, slots=True)
class Due:
    """The ticks that are to become jobs now, in order; and when to look again."""

    ticks: tuple[Instant, ...]
    next: Instant


def due(schedule: Schedule, mark: Mark | None, ticks: Ticks, now: Instant) -> Due:
    """Which ticks become jobs. Every one that is on time does; of others, those of the policy."""
    if schedule.paused:
        return Due((), NEVER)
    after = reached(schedule, mark)
    if schedule.missed is Missed.ALL:
        found = tuple(islice(_until(now, ticks(after)), BATCH))
        if len(found) == BATCH:
            return Due(found, next(ticks(found[-1]), NEVER))
    else:
        found = tuple(_until(now, ticks(max(after, now - ON_TIME))))
        if not found and schedule.missed is Missed.LAST:
            found = _newest(ticks, after, now)
    return Due(found, next(ticks(max(after, now)), NEVER))


def reached(schedule: Schedule, mark: Mark | None) -> Instant:
    """Beyond what the next tick lies. A mark of before the last edit or pause counts no more."""
    return mark.tick if mark is not None and mark.since == schedule.since else schedule.since


def _until(now: Instant, ticks: Iterable[Instant]) -> Iterator[Instant]:
    return takewhile(lambda tick: tick <= now, ticks)


def _newest(ticks: Ticks, after: Instant, now: Instant) -> tuple[Instant, ...]:
    """The last tick up to now: looked for near now first, for a year has 31 million seconds."""
    reach = _HOUR
    while True:
        start = max(after, now - reach)
        found = tuple(deque(_until(now, ticks(start)), maxlen=1))
        if found or start == after:
            return found
        reach *= 24


def interval(anchor: Instant, every: int) -> Ticks:
    """Each so many microseconds after the anchor, whatever clocks on walls do."""

    def ticks(after: Instant) -> Iterator[Instant]:
        return count(anchor + every * max(1, (after - anchor) // every + 1), every)

    return ticks


def job_of(schedule: Schedule, tick: Instant) -> NewJob:
    """The job that a tick makes: the same, whoever makes it and however often."""
    return _job(schedule, uuid5(schedule.id, str(tick)), tick)


def extra_job(schedule: Schedule, job_id: UUID, now: Instant) -> NewJob:
    """A job beside the ticks, because somebody wants it now: to its task, now is the tick."""
    return _job(schedule, job_id, now)


def _job(schedule: Schedule, job_id: UUID, instant: Instant) -> NewJob:
    headers = {**schedule.job.headers, NAME_HEADER: schedule.name, TICK_HEADER: iso(instant)}
    return replace(schedule.job, id=job_id, headers=headers)


def iso(instant: Instant) -> str:
    return to_datetime(instant).isoformat().replace("+00:00", "Z")


def begun(schedule: Schedule, now: Instant) -> Schedule:
    """A schedule as it begins; intervals count from a whole second."""
    return replace(schedule, anchor=now // SECOND * SECOND, since=now)


def edited(old: Schedule, new: Schedule, now: Instant) -> Schedule:
    """What code says now, in place of what it said before. A pause is a person's, and stays."""
    kept = replace(new, id=old.id, paused=old.paused, anchor=old.anchor, since=old.since)
    return kept if old.timing == new.timing else begun(kept, now)


def set_paused(schedule: Schedule, now: Instant, *, paused: bool) -> Schedule:
    """The ticks of a pause are nobody's: they are not missed, and do not come back after it."""
    if schedule.paused == paused:
        return schedule
    return replace(schedule, paused=paused, since=schedule.since if paused else now)


def check_schedule(schedule: Schedule) -> None:
    """Raise what is wrong with it, but for its timing."""
    check_text("the name of a schedule", schedule.name)
    if not schedule.name.strip():
        raise InvalidArgumentError("the name of a schedule is empty")
    check(schedule.job)
    plain = NewJob(id=schedule.job.id, task=schedule.job.task)
    alone = [
        field.name
        for field in fields(plain)
        if field.name not in ("id", *_SHARED)
        and getattr(schedule.job, field.name) != getattr(plain, field.name)
    ]
    if alone:
        option = alone[0].replace("digest", "id")  # which is there if the id was given
        raise InvalidArgumentError(
            f"schedule {schedule.name!r} has the option {option}, which is for one job; "
            "a schedule makes many"
        )


def facts_of(job: NewJob, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a job says, for a fingerprint: its arguments plain, for encryption differs each time."""
    shared = {name: getattr(job, name) for name in _SHARED if name != "payload"}
    return {**shared, "policy": job.policy.encode(), "arguments": arguments}
