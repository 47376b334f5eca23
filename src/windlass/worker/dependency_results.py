"""Results of the jobs that a job depends on: awaited child jobs, and parents of a flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from windlass.core.codec import Codec, Purpose
from windlass.core.errors import ChildrenFailed, MissingInput
from windlass.core.job.new_job import NewJob
from windlass.core.job.result_reference import RESULTS, needed_parents, resolve_references
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store

PAGE_SIZE = 1000  # rows per read


@dataclass(slots=True)
class ChildResults:
    """States of the jobs that a task waits for; each list holds their indexes."""

    results: dict[int, Any] = field(default_factory=dict)
    unfinished: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)  # index, with state and error code
    pruned: list[int] = field(default_factory=list)  # missing now, but existed earlier


async def read_children(
    store: Store, codec: Codec, job: JobRow, ids: Sequence[UUID]
) -> ChildResults:
    """Read child jobs. A missing one is `pruned` if the job has already waited for it."""
    children = await _read_results(store, codec, ids)
    if children.missing and job.attempt > 1:
        [edges] = await store.edges([job.id])
        parents = set(edges.parents)
        children.pruned = [index for index in children.missing if ids[index] in parents]
    return children


async def _read_results(store: Store, codec: Codec, ids: Sequence[UUID]) -> ChildResults:
    children = ChildResults()
    for start in range(0, len(ids), PAGE_SIZE):
        rows = await store.get(ids[start : start + PAGE_SIZE])
        for index, row in enumerate(rows, start):
            if row is None:
                children.missing.append(index)
            elif not row.final:
                children.unfinished.append(index)
            elif row.state is State.SUCCEEDED:
                children.results[index] = _decode_result(row, codec)
            else:
                children.failed.append((index, _final_state(row)))
    return children


def _decode_result(row: JobRow, codec: Codec) -> Any:
    return None if row.result is None else codec.decode(row.result, Purpose.RESULT)


def _final_state(row: JobRow) -> str:
    code = f" with {row.error.code}" if row.error is not None else ""
    return f"{row.state}{code}"


def child_id(job: JobRow, name: str, index: int) -> UUID:
    """Return an id that is the same in every attempt, so that no child is enqueued twice."""
    return uuid5(job.id, f"{name}/{index}")


def collect_results(children: ChildResults, ids: Sequence[UUID], task: str) -> list[Any]:
    """Return all results in order. Raise ChildrenFailed if a child did not succeed."""
    if children.failed:
        index, state = children.failed[0]
        others = f", and {len(children.failed) - 1:,} more" if len(children.failed) > 1 else ""
        raise ChildrenFailed(
            f"of {len(ids):,} jobs of {task!r} that this one waits for, "
            f"{ids[index]} {state}{others}"
        )
    return [children.results[index] for index in range(len(ids))]


def check_not_pruned(children: ChildResults, ids: Sequence[UUID], task: str) -> None:
    """Raise MissingInput if a child was pruned: it has run, so it is not enqueued again."""
    if children.pruned:
        raise MissingInput(
            f"of {len(ids):,} jobs of {task!r} that this one waits for, {ids[children.pruned[0]]} "
            "and its result were pruned; keep finished jobs for longer (retention)"
        )


def with_id(new: NewJob, job_id: UUID) -> NewJob:
    return replace(new, id=job_id)


async def resolve_results(
    store: Store, codec: Codec, job: JobRow, stored: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a job with the results of its parents filled in.

    A parent that did not succeed has no result; the job then runs only if its policy allows it.
    """
    arguments = dict(stored)
    references = arguments.pop(RESULTS)
    indexes = sorted(needed_parents(references))
    [edges] = await store.edges([job.id])
    ids = [edges.parents[index] for index in indexes]
    parents = await _read_results(store, codec, ids)
    if parents.missing:
        raise MissingInput(
            f"the result of job {ids[parents.missing[0]]}, which job {job.id} needs, was pruned; "
            "keep finished jobs for longer (retention), or retry the flow from that job"
        )
    results = {index: parents.results.get(number) for number, index in enumerate(indexes)}
    return {**arguments, **resolve_references(references, results)}
