"""Rules for reads: jobs, logs, counts and records of both stores."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from windlass.core.clock import MINUTE, SECOND
from windlass.core.query.job_query import JobQuery
from windlass.core.versioned_record import Put
from windlass.testing.clock import START
from windlass.testing.conformance.model import store_dump, strategies
from windlass.testing.conformance.model.limit_rules import LimitRules
from windlass.testing.conformance.model.store_dump import ALL, recent
from windlass.testing.conformance.model.store_pair import MakeStore
from windlass.testing.conformance.model.strategies import Options
from windlass.testing.factories import set_paused


class QueryRules(LimitRules):
    """Rules that read both stores and compare the results."""

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__(make_store)
        self.ids: list[UUID] = []  # ids of all jobs ever enqueued

    def some_id(self, pick: int) -> UUID:
        """Return the id of a stored job or, sometimes, of a deleted or unknown one."""
        known = self.ids if pick % 5 == 4 else [*self.checker.rows] or self.ids
        return recent(known, pick) if known else self.uuid()

    # -- records

    @rule(puts=strategies.puts)
    def put_records(self, puts: list[Put]) -> None:
        self.both(lambda store: store.put_records(puts))

    @rule(key=strategies.keys, limit=st.integers(1, 3), remove=st.booleans())
    def read_records(self, key: str, limit: int, remove: bool) -> None:
        if remove:
            self.both(lambda store: store.delete_records("kind", [key]))
        self.both(lambda store: store.get_records("kind", [key, "never"]))
        self.both(lambda store: store.list_records("kind", key, limit))
        self.both(lambda store: store.list_records("kind"))

    # -- reads

    @rule(filters=strategies.filters, pick=strategies.pick, limit=st.integers(1, 5))
    def find(self, filters: list[Options], pick: int, limit: int) -> None:
        values: dict[str, Any] = {}
        for option in filters:
            values |= option
        for name in ("created_from", "created_to"):
            if name in values:
                values[name] = self.clock.now() - values[name] * SECOND
        if values.pop("retried", None):
            values["retry_of"] = self.some_id(pick)
        self.both(lambda store: store_dump.find(store, JobQuery(limit=limit, **values)))
        self.both(
            lambda store: store_dump.find(store, JobQuery(limit=limit, omit_payload=True, **values))
        )
        self.both(lambda store: store.insights.count(JobQuery(limit=limit, **values)))

    @precondition(lambda self: self.ids)
    @rule(
        picks=strategies.picks,
        owner=strategies.owners,
        behind=st.integers(0, 6),
        limit=st.integers(1, 4),
    )
    def read(self, picks: list[int], owner: str | None, behind: int, limit: int) -> None:
        ids = [self.some_id(pick) for pick in picks]
        self.both(lambda store: store.get(ids, owner))
        self.both(lambda store: store.checkpoints(ids))
        self.both(store_dump.stats)
        self.both(lambda store: store.edges(ids))
        self.both(lambda store: store.edges(ids, limit))
        self.both(lambda store: store_dump.failures(store, START, ALL))
        self.both(lambda store: store.insights.flows([strategies.FLOW, ids[0]]))
        self.both(lambda store: store.insights.newest_flows(limit, owner=owner))
        whole = partial(store_dump.rollups, since=0, until=self.clock.now() + MINUTE)
        self.both(whole)
        self.both(
            partial(store_dump.rollups, since=START, until=self.clock.now() // MINUTE * MINUTE)
        )
        row = self.checker.rows.get(ids[0])
        after_ = max(row.seq - behind, 0) if row else 0
        self.both(lambda store: store_dump.events(store, ids[0], after_, limit))
        if row is not None and row.final:
            self.both(lambda store: store_dump.tail(store, ids[0], after_))

    @rule(queues=st.lists(st.sampled_from(strategies.QUEUES), max_size=2), paused=st.booleans())
    def pause(self, queues: list[str], paused: bool) -> None:
        self.both(lambda store: set_paused(store, queues, paused=paused))
