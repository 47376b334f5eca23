"""Queue positions of jobs, so that limit keys share a queue fairly.

The jobs of all keys alternate. A new key does not wait for the backlog of another key
(docs/design/decisions/0017).
"""

from __future__ import annotations

from windlass.core.job.row import JobRow


def fair_position(key: str | None, arrival: int, first: int | None, last: int | None) -> int:
    """Return the queue position of a job, so that keys share the queue fairly.

    `first` is the first position in the queue, `last` the last position of the job's key. A job
    without a key is placed in the order of arrival. A job with a key is placed behind the jobs of
    its key. If its key has none, it is placed right behind `first`: a new key never waits for the
    backlog of another one. Jobs of one key are two positions apart, so that others fit between.
    No job gets the position `first` itself: keys that return again and again could starve it.
    """
    if key is None or first is None:
        return arrival
    return first + 1 if last is None else max(first, last + 2)


def queue_order(row: JobRow) -> tuple[int, int, int]:
    """Sort key of jobs in a queue, or at a gate."""
    return -row.priority, row.position or 0, row.id.int
