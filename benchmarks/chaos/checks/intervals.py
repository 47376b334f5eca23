"""Operations on time intervals: counts, complements and intersections. No Windlass code."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]  # microseconds; the last is not in it
EVER: Span = (0, 2**62)


def _steps(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """At each instant at which it changes, how many there are from then on."""
    changes: dict[int, int] = {}
    for first, last in spans:
        if first < last:
            changes[first] = changes.get(first, 0) + 1
            changes[last] = changes.get(last, 0) - 1
    number, found = 0, []
    for at in sorted(changes):
        number += changes[at]
        found.append((at, number))
    return found


def most_of(spans: Iterable[Span]) -> int:
    return max((number for _, number in _steps(spans)), default=0)


def below(spans: Iterable[Span], most: int) -> list[Span]:
    """When there were fewer than so many."""
    found, since = [], EVER[0]
    full = False
    for at, number in _steps(spans):
        if full != (number >= most):
            full = not full
            if full:
                found.append((since, at))
            since = at
    return found if full else [*found, (since, EVER[1])]


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The stretches that are in both; each is in order."""
    found, left, right = [], 0, 0
    while left < len(one) and right < len(other):
        first = max(one[left][0], other[right][0])
        last = min(one[left][1], other[right][1])
        if first < last:
            found.append((first, last))
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return found


def longest(spans: Sequence[Span], within: Span) -> int:
    """The longest part of one of these, which are in order, that lies within that one."""
    index = max(bisect_right(spans, (within[0], EVER[1])) - 1, 0)
    found = 0
    while index < len(spans) and spans[index][0] < within[1]:
        found = max(found, min(spans[index][1], within[1]) - max(spans[index][0], within[0]))
        index += 1
    return found
