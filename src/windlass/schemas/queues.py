"""Schemas of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from windlass.core.job.state import State
from windlass.core.query.queue_rates import Rates
from windlass.insights.queue_overview import Queue
from windlass.schemas.base import JsonModel, shared_fields


class RatesView(JsonModel):
    """Attempts per minute, mean queue wait and mean run time in seconds, over `minutes`."""

    minutes: float
    started: float
    succeeded: float
    failed: float
    retried: float
    canceled: float
    mean_wait: float | None
    mean_run: float | None

    @staticmethod
    def of(rates: Rates) -> RatesView:
        return RatesView(**shared_fields(RatesView, rates))


class QueueView(JsonModel):
    """A queue; `counts` are by state, lower bounds for states in `capped`.

    `oldestAge` is the queue wait of the oldest queued job in seconds.
    """

    name: str
    paused: bool
    counts: Mapping[State, int]
    capped: Sequence[State]
    oldest_queued_at: datetime | None
    oldest_age: float | None
    per_minute: RatesView

    @staticmethod
    def of(queue: Queue) -> QueueView:
        values = shared_fields(QueueView, queue) | {
            "capped": sorted(queue.capped),
            "per_minute": RatesView.of(queue.rates),
        }
        return QueueView(**values)


class Queues(JsonModel):
    """Queues by name."""

    queues: Sequence[QueueView]

    @staticmethod
    def of(queues: Sequence[Queue]) -> Queues:
        return Queues(queues=[QueueView.of(queue) for queue in queues])


class PausedView(JsonModel):
    """Whether a queue is paused."""

    name: str
    paused: bool
