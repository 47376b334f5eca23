"""Limits, on both stores, and what they leave open of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.admission.gates import LIMIT, Limit, Setting
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import Answer
from windlass.core.job.row import JobRow
from windlass.core.job.state import WAITING
from windlass.core.records import Put
from windlass.store import Store
from windlass.testing.conformance.model.store_pair import Call, Pair


class Limiting(Pair):
    """What every call has to allow for where there may be limits."""

    def put_limit(self, name: str, limit: Limit) -> None:
        put = Put(kind=LIMIT, key=name, value=Setting(given=limit).encode())
        self.both(lambda store: store.put_records([put]))
        self.watch.limits.set(name, limit)

    def moved(self, ids: Sequence[UUID], call: Call[list[Answer]]) -> list[Answer]:
        """Make a call that moves jobs; of those with gates, where they wait is not compared.

        The answer tells of the move. What it then let in is in line when the call is repeated.
        """

        async def told(store: Store) -> list[Answer]:
            answers = await call(store)
            rows = await self.reference.get(ids)
            gated = [row is not None and bool(row.gates) for row in rows]
            return [
                replace(answer, state=None) if unsure and answer.state in WAITING else answer
                for answer, unsure in zip(answers, gated, strict=True)
            ]

        return self.both(told)

    def check_due(self, first: list[JobRow], due: list[JobRow], limit: int) -> None:
        """Of all that is due, in any order, those are the first."""
        now = self.clock.now()
        assert len(first) == min(limit, len(due))
        # Ties may be broken as the store likes: the instants tell whether the order is right.
        since = sorted(maintenance.due_since(row, now) or 0 for row in due if row.gate is None)
        timed = [maintenance.due_since(row, now) for row in first if row.gate is None]
        assert timed == since[: len(timed)]
        # Whoever stands for a gate that is to be looked at comes before all whose time has come.
        heads = {row.id for row in due if maintenance.due_since(row, now) is None}
        assert not timed or heads <= {row.id for row in first}
