"""Schedules: jobs enqueued at cron times or intervals, and which ticks are due.

A tick is an instant at which a schedule enqueues a job. The job's id is derived from the schedule's
id and the tick: every worker enqueues the same job, so no leader is needed. A mark stores the last
tick that was enqueued; it is written after the jobs (docs/design/decisions/0016).
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
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.new_job import NewJob, check_new_job
from windlass.core.job.retry_policy import Policy
from windlass.core.size_limits import check_text

SCHEDULE = "schedule"  # record kind of schedules; the key is the name
MARK = "schedule-mark"  # record kind of marks; the key is the id of the schedule
NAME_HEADER, TICK_HEADER = "schedule", "schedule-tick"  # of a job that a schedule enqueued
ON_TIME = MINUTE  # a tick is missed if no worker processed it for longer
BATCH = 100  # ticks of a schedule that are enqueued in one call
NEVER: Instant = MAX_INSTANT
_HOUR = 60 * MINUTE
Ticks = Callable[[Instant], Iterator[Instant]]  # all ticks after an instant, in order

# Fields that belong to a single job. The jobs of a schedule share all other fields.
_SINGLE = {
    "id", "run_at", "expires_at", "request_id", "digest", "retry_of", "resume", "depends_on",
    "on_parent", "flow_id",
}  # fmt: skip
_SHARED = tuple(field.name for field in fields(NewJob) if field.name not in _SINGLE)


class MissedPolicy(StrEnum):
    """What happens to ticks that no worker processed within a minute."""

    SKIP = "skip"  # they are skipped
    LAST = "last"  # only the newest is enqueued, and none if another tick is on time
    ALL = "all"  # all are enqueued, the oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule. `job` is the template of its jobs. It has `cron`, or `every` in microseconds.

    Ticks are after `since`; intervals count from `anchor`. `declared` is the fingerprint of the
    declaration in code that wrote it last, None if it was added at run time.
    """

    id: UUID
    name: str
    job: NewJob
    cron: str | None = None
    every: int | None = None
    tz: str = "UTC"
    missed: MissedPolicy = MissedPolicy.LAST
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
        """Decode; ignore fields of newer versions."""
        stored = json.loads(data)
        known: dict[str, Any] = {
            f.name: stored[f.name] for f in fields(Schedule) if f.name in stored
        }
        shared = {name: stored["job"][name] for name in _SHARED if name in stored["job"]}
        shared |= {
            "id": UUID(stored["id"]),
            "payload": base64.b64decode(shared["payload"]),
            "policy": Policy.decode(shared["policy"]),
            "tags": tuple(shared["tags"]),
        }
        known |= {
            "id": shared["id"],
            "job": NewJob(**shared),
            "missed": MissedPolicy(stored["missed"]),
        }
        return Schedule(**known)


@dataclass(frozen=True, slots=True)
class Mark:
    """All ticks up to `tick` are processed, of the schedule with this `since`."""

    since: Instant
    tick: Instant

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Mark:
        stored = json.loads(data)
        return Mark(stored["since"], stored["tick"])


@dataclass(frozen=True, slots=True)
class DueTicks:
    """The ticks to enqueue now, in order, and the next tick."""

    ticks: tuple[Instant, ...]
    next: Instant


def due_ticks(schedule: Schedule, mark: Mark | None, ticks: Ticks, now: Instant) -> DueTicks:
    """Return the ticks to enqueue: all that are on time, and missed ones by the policy."""
    if schedule.paused:
        return DueTicks((), NEVER)
    after = last_tick(schedule, mark)
    if schedule.missed is MissedPolicy.ALL:
        found = tuple(islice(_until(now, ticks(after)), BATCH))
        if len(found) == BATCH:
            return DueTicks(found, next(ticks(found[-1]), NEVER))
    else:
        found = tuple(_until(now, ticks(max(after, now - ON_TIME))))
        if not found and schedule.missed is MissedPolicy.LAST:
            found = _newest(ticks, after, now)
    return DueTicks(found, next(ticks(max(after, now)), NEVER))


def last_tick(schedule: Schedule, mark: Mark | None) -> Instant:
    """Return the instant after which the next tick is. A mark older than the last edit is void."""
    return mark.tick if mark is not None and mark.since == schedule.since else schedule.since


def _until(now: Instant, ticks: Iterable[Instant]) -> Iterator[Instant]:
    return takewhile(lambda tick: tick <= now, ticks)


def _newest(ticks: Ticks, after: Instant, now: Instant) -> tuple[Instant, ...]:
    """Return the last tick up to now. Searches backward from now: a year has 31 million seconds."""
    span = _HOUR
    while True:
        start = max(after, now - span)
        found = tuple(deque(_until(now, ticks(start)), maxlen=1))
        if found or start == after:
            return found
        span *= 24


def interval(anchor: Instant, every: int) -> Ticks:
    """Return the ticks of an interval in microseconds, independent of time zones."""

    def ticks(after: Instant) -> Iterator[Instant]:
        return count(anchor + every * max(1, (after - anchor) // every + 1), every)

    return ticks


def tick_job(schedule: Schedule, tick: Instant) -> NewJob:
    """Return the job of a tick: always the same, on every worker."""
    return _job(schedule, uuid5(schedule.id, str(tick)), tick)


def manual_job(schedule: Schedule, job_id: UUID, now: Instant) -> NewJob:
    """Return the job of a manual run; its tick is now."""
    return _job(schedule, job_id, now)


def _job(schedule: Schedule, job_id: UUID, instant: Instant) -> NewJob:
    headers = {**schedule.job.headers, NAME_HEADER: schedule.name, TICK_HEADER: iso(instant)}
    return replace(schedule.job, id=job_id, headers=headers)


def iso(instant: Instant) -> str:
    return to_datetime(instant).isoformat().replace("+00:00", "Z")


def start_schedule(schedule: Schedule, now: Instant) -> Schedule:
    """Return a schedule whose ticks start now; intervals count from a whole second."""
    return replace(schedule, anchor=now // SECOND * SECOND, since=now)


def merge_declared(old: Schedule, new: Schedule, now: Instant) -> Schedule:
    """Return the schedule of changed code. Keeps a pause, which was set by a user."""
    kept = replace(new, id=old.id, paused=old.paused, anchor=old.anchor, since=old.since)
    return kept if old.timing == new.timing else start_schedule(kept, now)


def set_paused(schedule: Schedule, now: Instant, *, paused: bool) -> Schedule:
    """Pause or resume a schedule. Ticks during a pause are dropped; they do not count as missed."""
    if schedule.paused == paused:
        return schedule
    return replace(schedule, paused=paused, since=schedule.since if paused else now)


def check_schedule(schedule: Schedule) -> None:
    """Raise an error if a schedule is invalid; does not check its timing."""
    check_text("the name of a schedule", schedule.name)
    if not schedule.name.strip():
        raise InvalidArgumentError("the name of a schedule is empty")
    check_new_job(schedule.job)
    default = NewJob(id=schedule.job.id, task=schedule.job.task)
    single = [
        field.name
        for field in fields(default)
        if field.name in _SINGLE - {"id"}
        and getattr(schedule.job, field.name) != getattr(default, field.name)
    ]
    if single:
        option = single[0].replace("digest", "id")  # an explicit id sets the digest
        raise InvalidArgumentError(
            f"schedule {schedule.name!r} has the option {option}, which applies to a single job; "
            "remove it"
        )


def fingerprint_data(job: NewJob, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of the fingerprint. Arguments are plain: encryption differs each time."""
    shared = {name: getattr(job, name) for name in _SHARED if name != "payload"}
    return {**shared, "policy": job.policy.encode(), "arguments": arguments}
