"""What jobs will return, as arguments of others: placeholders, and the form they are stored in.

A stored reference names a parent by its place among those that its job depends on, so that a retry
of the whole flow, whose jobs have other ids, can use the same payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from windlass.core.errors import InvalidArgumentError

RESULTS = "$results"  # the key of a payload under which arguments with references are
_ONE = "$parent"
_MANY = "$parents"
Places: TypeAlias = Callable[[UUID], int]


class Promised:
    """Stands for the result of a job, or for those of several as a list."""

    __slots__ = ("jobs", "many")

    def __init__(self, jobs: Sequence[UUID], *, many: bool = False) -> None:
        self.jobs = tuple(jobs)
        self.many = many


def promised(value: Any) -> list[UUID]:
    """The jobs that a value refers to, in the order in which it names them."""
    match value:
        case Promised():
            return list(value.jobs)
        case Mapping():
            return [job for item in value.values() for job in promised(item)]
        case list() | tuple():
            return [job for item in value for job in promised(item)]
    return []


def pack(value: Any, place: Places) -> Any:
    """A value with references, as it is stored."""
    match value:
        case Promised(jobs=jobs, many=False):
            return {_ONE: place(jobs[0])}
        case Promised(jobs=jobs):
            places = [place(job) for job in jobs]
            if places and places == list(range(places[0], places[0] + len(places))):
                return {_MANY: [places[0], places[-1] + 1]}
            return [{_ONE: number} for number in places]
        case Mapping():
            if _ONE in value or _MANY in value:
                raise InvalidArgumentError(f"an argument has a key {_ONE!r}, which is Windlass's")
            return {key: pack(item, place) for key, item in value.items()}
        case list() | tuple():
            return [pack(item, place) for item in value]
    return value


def needed(stored: Any) -> set[int]:
    """The places of the parents whose results a stored value needs."""
    match stored:
        case {"$parent": int(number), **rest} if not rest:
            return {number}
        case {"$parents": [int(first), int(end)], **rest} if not rest:
            return set(range(first, end))
        case dict():
            return {number for item in stored.values() for number in needed(item)}
        case list():
            return {number for item in stored for number in needed(item)}
    return set()


def unpack(stored: Any, results: Mapping[int, Any]) -> Any:
    """The value, with the results in it."""
    match stored:
        case {"$parent": int(number), **rest} if not rest:
            return results[number]
        case {"$parents": [int(first), int(end)], **rest} if not rest:
            return [results[number] for number in range(first, end)]
        case dict():
            return {key: unpack(item, results) for key, item in stored.items()}
        case list():
            return [unpack(item, results) for item in stored]
    return stored
