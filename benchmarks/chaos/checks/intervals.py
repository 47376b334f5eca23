"""Operations on time intervals: counts, complements and intersections. No Windlass code."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]  # microseconds, half-open
ALL_TIME: Span = (0, 2**62)


def _overlap_counts(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Return the number of overlapping spans from each instant at which it changes."""
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


def max_overlap(spans: Iterable[Span]) -> int:
    return max((number for _, number in _overlap_counts(spans)), default=0)


def below(spans: Iterable[Span], limit: int) -> list[Span]:
    """Return the spans with fewer than `limit` overlapping spans."""
    found, since = [], ALL_TIME[0]
    full = False
    for at, number in _overlap_counts(spans):
        if full != (number >= limit):
            full = not full
            if full:
                found.append((since, at))
            since = at
    return found if full else [*found, (since, ALL_TIME[1])]


def intersection(first_spans: Sequence[Span], second_spans: Sequence[Span]) -> list[Span]:
    """Return the intersection of two sorted lists of spans."""
    found, left, right = [], 0, 0
    while left < len(first_spans) and right < len(second_spans):
        first = max(first_spans[left][0], second_spans[right][0])
        last = min(first_spans[left][1], second_spans[right][1])
        if first < last:
            found.append((first, last))
        if first_spans[left][1] < second_spans[right][1]:
            left += 1
        else:
            right += 1
    return found


def longest_overlap(spans: Sequence[Span], within: Span) -> int:
    """Return the longest overlap of one of these sorted spans with `within`."""
    index = max(bisect_right(spans, (within[0], ALL_TIME[1])) - 1, 0)
    found = 0
    while index < len(spans) and spans[index][0] < within[1]:
        found = max(found, min(spans[index][1], within[1]) - max(spans[index][0], within[0]))
        index += 1
    return found
