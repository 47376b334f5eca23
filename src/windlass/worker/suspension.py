"""Waiting without a slot: for jobs that a task made, or for a signal.

A task that waits is suspended: its attempt ends, uncounted, and when what it waits for has come, it
runs again from its beginning. Steps that were completed answer at once, and so does the wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from windlass.core.codec import Codec, Purpose
from windlass.core.errors import ChildrenFailed, MissingInput
from windlass.core.job.result_reference import RESULTS, needed, unpack
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.store import Store

PAGE = 1000  # rows that are read at a time


class Suspend(BaseException):
    """Ends an attempt that waits. No `Exception`: a task that handles those must not stop it."""

    def __init__(
        self,
        *,
        awaits: Sequence[UUID] = (),
        children: Sequence[NewJob] = (),
        timeout: float | None = None,
        signals: int | None = None,
    ) -> None:
        super().__init__("the task waits; let this pass")
        self.awaits = tuple(awaits)
        self.children = tuple(children)
        self.timeout = timeout
        self.signals = signals


def suspension_in(error: BaseException) -> Suspend | None:
    """What a task raised to wait, though it may have waited for several things side by side."""
    if isinstance(error, Suspend):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((it for each in error.exceptions if (it := suspension_in(each))), None)
    return None


@dataclass(slots=True)
class Seen:
    """What became of jobs that a task made: results by place, and who is not done, or not there."""

    results: dict[int, Any] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)  # among the missing: those that were there


async def see(store: Store, codec: Codec, job: JobRow, ids: Sequence[UUID]) -> Seen:
    """For those of them that are not there, it matters whether the job waited for them before."""
    seen = await _see(store, codec, ids)
    if seen.missing and job.attempt > 1:
        [edges] = await store.edges([job.id])
        before = set(edges.parents)
        seen.gone = [place for place in seen.missing if ids[place] in before]
    return seen


async def _see(store: Store, codec: Codec, ids: Sequence[UUID]) -> Seen:
    seen = Seen()
    for start in range(0, len(ids), PAGE):
        rows = await store.get(ids[start : start + PAGE])
        for place, row in enumerate(rows, start):
            if row is None:
                seen.missing.append(place)
            elif not row.final:
                seen.open.append(place)
            elif row.state is State.SUCCEEDED:
                seen.results[place] = _result(row, codec)
            else:
                seen.lost.append((place, _end(row)))
    return seen


def _result(row: JobRow, codec: Codec) -> Any:
    return None if row.result is None else codec.decode(row.result, Purpose.RESULT)


def _end(row: JobRow) -> str:
    code = f" with {row.error.code}" if row.error is not None else ""
    return f"{row.state}{code}"


def child_id(job: JobRow, name: str, place: int) -> UUID:
    """The same in every attempt, so that what was made before is found, and not made twice."""
    return uuid5(job.id, f"{name}/{place}")


def gathered(seen: Seen, ids: Sequence[UUID], task: str) -> list[Any]:
    """All results, in order; raises if one of them will never be."""
    if seen.lost:
        place, end = seen.lost[0]
        others = f", and {len(seen.lost) - 1:,} more" if len(seen.lost) > 1 else ""
        raise ChildrenFailed(
            f"of {len(ids):,} jobs of {task!r} that this one waits for, {ids[place]} {end}{others}"
        )
    return [seen.results[place] for place in range(len(ids))]


def check_kept(seen: Seen, ids: Sequence[UUID], task: str) -> None:
    """A job that was made before is not made again: it has run."""
    if seen.gone:
        raise MissingInput(
            f"of {len(ids):,} jobs of {task!r} that this one waits for, {ids[seen.gone[0]]} is not "
            "kept any more, nor is its result; keep finished jobs for longer"
        )


def made(new: NewJob, job_id: UUID) -> NewJob:
    return replace(new, id=job_id)


async def with_results(
    store: Store, codec: Codec, job: JobRow, stored: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a job, with the results of its parents where they belong.

    A parent that did not succeed has none: the job runs all the same only if its policy says so.
    """
    arguments = dict(stored)
    later = arguments.pop(RESULTS)
    places = sorted(needed(later))
    [edges] = await store.edges([job.id])
    ids = [edges.parents[place] for place in places]
    seen = await _see(store, codec, ids)
    if seen.missing:
        raise MissingInput(
            f"the result of job {ids[seen.missing[0]]}, which job {job.id} needs, is not kept any "
            "more; keep finished jobs for longer, or retry the flow from there"
        )
    results = {place: seen.results.get(number) for number, place in enumerate(places)}
    return {**arguments, **unpack(later, results)}
