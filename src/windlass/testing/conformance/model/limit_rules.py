"""Base for rules with limits: comparison of results that limits leave open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import ApplyResult
from windlass.core.job.row import JobRow
from windlass.core.job.state import WAITING
from windlass.core.versioned_record import Put
from windlass.store import Store
from windlass.testing.conformance.model.store_pair import Call, StorePair


class LimitRules(StorePair):
    """Compares calls that move jobs, which may wait at gates."""

    def put_limit(self, name: str, limit: Limit) -> None:
        put = Put(kind=LIMIT, key=name, value=LimitSetting(override=limit).encode())
        self.both(lambda store: store.put_records([put]))
        self.checker.limits.set(name, limit)

    def compare_moves(
        self, ids: Sequence[UUID], call: Call[list[ApplyResult]]
    ) -> list[ApplyResult]:
        """Run a call that moves jobs; ignore the waiting state of jobs with gates.

        The result describes the move itself. A gate may admit the job right afterwards, and then a
        repeated call returns another state.
        """

        async def comparable(store: Store) -> list[ApplyResult]:
            results = await call(store)
            rows = await self.reference.get(ids)
            gated = [row is not None and bool(row.gates) for row in rows]
            return [
                replace(result, state=None) if has_gate and result.state in WAITING else result
                for result, has_gate in zip(results, gated, strict=True)
            ]

        return self.both(comparable)

    def check_due(self, first: list[JobRow], due: list[JobRow], limit: int) -> None:
        """Check that `first` are the first `limit` rows of `due`."""
        now = self.clock.now()
        assert len(first) == min(limit, len(due))
        # The order of ties is not defined: compare the instants.
        since = sorted(maintenance.due_since(row, now) or 0 for row in due if row.gate is None)
        timed = [maintenance.due_since(row, now) for row in first if row.gate is None]
        assert timed == since[: len(timed)]
        # The heads of gates to check come before all jobs that are due by time.
        heads = {row.id for row in due if maintenance.due_since(row, now) is None}
        assert not timed or heads <= {row.id for row in first}
