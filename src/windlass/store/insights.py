"""Store insights: the reads of a store that answer questions of people.

No worker needs them. `stores.computed_insights` computes most of them from the store's other
methods; a store overrides what it can read faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.job.attempt import Attempt
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.state import State
from windlass.core.query.job_query import Count, JobQuery

COUNT_CAP = 10_000
FLOW_RANGE = 1_000  # newest jobs of each flow that a list of flows counts
COUNT_RANGE = 100_000  # newest candidate jobs that `count` reads


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Depth of one queue by state. States in `capped` were counted only up to COUNT_CAP."""

    counts: Mapping[State, int] = field(default_factory=dict)
    capped: frozenset[State] = frozenset()
    oldest_queued_at: Instant | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Attempts of a queue, task and outcome that were settled in one minute; times are sums."""

    minute: Instant
    queue: str
    task: str
    outcome: State
    count: int
    wait: int
    run: int


class StoreInsights(ABC):
    """Reads of one store handle, for people. They follow the rules of the store contract."""

    @abstractmethod
    async def count(self, query: JobQuery) -> Count:
        """Count the matching jobs up to COUNT_CAP; ignores limit and cursor.

        It may read only the newest COUNT_RANGE jobs; the result is then capped, too.
        """

    @abstractmethod
    async def stats(self) -> Mapping[str, QueueStats]:
        """Return the depth by queue and state, exact up to COUNT_CAP."""

    @abstractmethod
    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        """Return jobs that failed since then.

        Reads the newest `limit` of them, and returns those of the owner and team.
        """

    @abstractmethod
    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        """Return the statistics of gates; an unused gate is empty. Admits no jobs.

        A job uses a slot if its permit is in use (`permits.in_use`); holders are sorted by the
        instant of that permit, then by id. `next_check_at` is None if no job waits, and in the
        past if the limit was changed.
        """

    @abstractmethod
    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        """Return the rollups per minute from `since` (inclusive) to `until` (exclusive)."""

    @abstractmethod
    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        """Return all attempts, oldest first; None for an unknown job."""

    @abstractmethod
    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        """Return the statistics of flows, of jobs of an owner and team; None without such jobs."""

    @abstractmethod
    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        """Return a page of flows with ids below `before`, newest first; ids increase with time.

        Reads `limit` flows, and of each the newest FLOW_RANGE jobs. A flow without jobs of the
        owner and team among these is omitted.
        """
