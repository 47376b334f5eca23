"""References to results of other jobs, used as arguments in a flow.

A stored reference names a parent by its index in `depends_on`. So a retry of the whole flow, whose
jobs have new ids, can use the same payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.errors import InvalidArgumentError

RESULTS = "$results"  # payload key of the arguments that contain references
_ONE = "$parent"
_MANY = "$parents"
ParentIndex: TypeAlias = Callable[[UUID], int]


class ResultReference:
    """Placeholder of the result of a job, or of a list of results of several jobs."""

    __slots__ = ("jobs", "many")

    def __init__(self, jobs: Sequence[UUID], *, many: bool = False) -> None:
        self.jobs = tuple(jobs)
        self.many = many


def referenced_jobs(value: Any) -> list[UUID]:
    """Return the jobs that a value refers to, in order."""
    match value:
        case ResultReference():
            return list(value.jobs)
        case Mapping():
            return [job for item in value.values() for job in referenced_jobs(item)]
        case list() | tuple():
            return [job for item in value for job in referenced_jobs(item)]
    return []


def encode_references(value: Any, parent_index: ParentIndex) -> Any:
    """Return a value with its references in stored form."""
    match value:
        case ResultReference(jobs=jobs, many=False):
            return {_ONE: parent_index(jobs[0])}
        case ResultReference(jobs=jobs):
            indexes = [parent_index(job) for job in jobs]
            if indexes and indexes == list(range(indexes[0], indexes[0] + len(indexes))):
                return {_MANY: [indexes[0], indexes[-1] + 1]}
            return [{_ONE: number} for number in indexes]
        case Mapping():
            if _ONE in value or _MANY in value:
                raise InvalidArgumentError(
                    f"an argument contains the key {_ONE!r} or {_MANY!r}, which Windlass reserves"
                )
            return {key: encode_references(item, parent_index) for key, item in value.items()}
        case list() | tuple():
            return [encode_references(item, parent_index) for item in value]
    return value


def needed_parents(stored: Any) -> set[int]:
    """Return the indexes of the parents whose results a stored value needs."""
    match stored:
        case {"$parent": int(number), **rest} if not rest:
            return {number}
        case {"$parents": [int(first), int(end)], **rest} if not rest:
            return set(range(first, end))
        case dict():
            return {number for item in stored.values() for number in needed_parents(item)}
        case list():
            return {number for item in stored for number in needed_parents(item)}
    return set()


def resolve_references(stored: Any, results: Mapping[int, Any]) -> Any:
    """Return the value with its references replaced by results."""
    match stored:
        case {"$parent": int(number), **rest} if not rest:
            return results[number]
        case {"$parents": [int(first), int(end)], **rest} if not rest:
            return [results[number] for number in range(first, end)]
        case dict():
            return {key: resolve_references(item, results) for key, item in stored.items()}
        case list():
            return [resolve_references(item, results) for item in stored]
    return stored
