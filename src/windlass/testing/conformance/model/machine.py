"""The state machine: what may happen, made to happen to both stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from windlass.core.admission.gates import Limit
from windlass.core.clock import after
from windlass.core.decisions import outcome
from windlass.core.decisions.transition import Answer, CancelRequest, Signal, Transition
from windlass.core.event import EventType, Record
from windlass.core.job.lease import Claim, Lease
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State, Trigger
from windlass.store import Pruned, Retention, Saying, Store
from windlass.testing.conformance.model import store_dump, strategies
from windlass.testing.conformance.model.faults import Accidents
from windlass.testing.conformance.model.store_dump import ALL, recent
from windlass.testing.conformance.model.store_pair import MakeStore
from windlass.testing.conformance.model.strategies import Options


class StoreModel(Accidents):
    """Every rule is something that happens in a life with workers, operators and accidents."""

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__(make_store)
        # What was asked and answered so far, to be repeated and to be late with.
        self.batches: list[Sequence[NewJob]] = []
        self.claims: list[Claim] = []
        self.held: list[JobRow] = []
        self.wishes: list[Transition] = []
        self.sayings: list[Saying] = []
        self.sights: list[JobRow] = []

    # -- putting in

    def new(self, options: Sequence[Options]) -> NewJob:
        values: dict[str, Any] = {"id": self.uuid(), "task": "one"}
        for option in options:
            values |= option
        now = self.clock.now()
        if "again" in values:
            values["id"] = self.some_id(values.pop("again"))
        if "run_in" in values:
            values["run_at"] = after(now, values.pop("run_in"))
        if "expires_after" in values:
            values["expires_at"] = after(now, values.pop("expires_after"))
        if "depends" in values:
            picks, known = values.pop("depends"), [*self.watch.rows.values()]
            parents = [recent(known, pick) for pick in picks] if known else []
            ids = [parent.id for parent in parents]
            values["depends_on"] = tuple(ids if picks == (0, 0) else dict.fromkeys(ids))
            values["owner"] = parents[0].owner if parents else ""
        if "retry" in values:
            ended = [row for row in self.watch.rows.values() if row.final]
            pick = values.pop("retry")
            origin = recent(ended, pick) if ended else None
            values["retry_of"] = origin.id if origin else self.some_id(pick)
            values["owner"] = origin.owner if origin else ""
        if "limit_key" in values:
            # A priority of its own: beside jobs without a key, its place depends on the numbers
            # that a store gives, and those may have gaps.
            values["priority"] = values.get("priority", 0) + 1
        self.ids.append(values["id"])
        return NewJob(**values)

    @initialize(
        limits=strategies.bounded,
        plain=st.integers(1, 4),
        batch=st.lists(strategies.jobs, max_size=3),
        limit=st.integers(1, 3),
    )
    def begin(
        self,
        limits: list[tuple[str, Limit]],
        plain: int,
        batch: list[list[Options]],
        limit: int,
    ) -> None:
        """Hypothesis leaves some rules out of each history: there is work all the same."""
        for name, bound in limits:
            self.put_limit(name, bound)
        self.put_in([[]] * plain + batch)
        self.take([("default", limit)], "w1")

    @rule(
        batch=st.lists(strategies.jobs, min_size=1, max_size=4),
        shared=strategies.shared,
        together=st.sampled_from([False, False, True]),
    )
    def enqueue(self, batch: list[list[Options]], shared: list[Options], together: bool) -> None:
        self.put_in(batch, shared, together=together)

    def put_in(
        self,
        batch: list[list[Options]],
        shared: Sequence[Options] = (),
        *,
        together: bool = False,
    ) -> None:
        jobs = [self.new([*shared, *options]) for options in batch]
        self.batches.append(jobs)
        self.both(lambda store: store.enqueue(jobs, together=together))

    @rule(picks=strategies.picks, length=st.integers(1, 4), together=st.booleans())
    def enqueue_a_flow(self, picks: list[int], length: int, together: bool) -> None:
        """A chain whose first job depends on what is there, and whose last on all of it."""
        known = [row for row in self.watch.rows.values() if not row.owner]
        ids = tuple(dict.fromkeys(recent(known, pick).id for pick in picks)) if known else ()
        jobs: list[NewJob] = []
        for _ in range(length):
            ids = (*ids, *(job.id for job in jobs[-1:]))
            jobs.append(self.new([{"depends_on": ids, "flow_id": strategies.FLOW}]))
        self.batches.append(jobs)
        self.both(lambda store: store.enqueue(jobs, together=together))

    @precondition(lambda self: self.batches)
    @rule(pick=strategies.pick)
    def enqueue_again(self, pick: int) -> None:
        self.both(lambda store: store.enqueue(recent(self.batches, pick)))

    @rule(batch=st.lists(strategies.jobs, min_size=1, max_size=3), lease=strategies.leases)
    def enqueue_and_claim(self, batch: list[list[Options]], lease: float | None) -> None:
        self.put_in(batch)
        self.take([(queue, ALL) for queue in strategies.QUEUES], "w1", lease)

    # -- running

    @rule(queues=strategies.lines, worker=st.sampled_from(["w1", "w2"]), lease=strategies.leases)
    def claim(self, queues: Sequence[tuple[str, int]], worker: str, lease: float | None) -> None:
        self.take(queues, worker, lease)

    def take(
        self, queues: Sequence[tuple[str, int]], worker: str, lease: float | None = None
    ) -> list[JobRow]:
        if not self.in_line:  # which ones come first is the store's affair: take all
            queues = [(queue, ALL) for queue, _ in queues]
        claim = Claim(token=self.uuid(), worker=worker, queues=queues, lease=lease)
        self.claims.append(claim)
        return self._claim(claim)

    @precondition(lambda self: self.claims)
    @rule(pick=strategies.pick)
    def claim_again(self, pick: int) -> None:
        self._claim(recent(self.claims, pick))

    def _claim(self, claim: Claim) -> list[JobRow]:
        async def call(store: Store) -> list[JobRow]:
            rows = await store.claim(claim)
            return rows if self.in_line else sorted(rows, key=lambda row: row.id)

        rows = self.both(call)
        self.watch.grant(rows)
        self.held += [row for row in rows if row not in self.held]
        return rows

    def running(self, pick: int) -> JobRow:
        """An attempt that holds its lease, or else one that did."""
        rows = [row for row in self.watch.rows.values() if row.state is State.RUNNING]
        return recent(rows or self.held, pick)

    def holder(self, pick: int, forge: str) -> JobRow:
        """The same, or an impostor, or a ghost of any attempt ever handed out."""
        row = self.running(pick)
        match forge:
            case "token":
                return replace(row, token=self.uuid())
            case "fence":
                return replace(row, fence=row.fence + 1)
            case "ghost":
                return recent(self.held, pick)
        return row

    @precondition(lambda self: self.held)
    @rule(
        picks=strategies.picks,
        forge=strategies.forgeries,
        seconds=st.sampled_from([1.0, 30.0, 90.0]),
    )
    def extend(self, picks: list[int], forge: str, seconds: float) -> None:
        leases: list[Lease] = [self.holder(pick, forge).lease for pick in picks]
        self.both(lambda store: store.extend(leases, seconds))

    def records(self, row: JobRow, said: Sequence[tuple[int, Options]]) -> list[Record]:
        """Numbered on from what is stored; a step of 0 repeats a number."""
        n = self.watch.rows.get(row.id, row).said
        made = []
        for step, values in said:
            n += step
            made.append(Record(n=n, **values))
        return made

    @precondition(lambda self: self.held)
    @rule(
        picks=strategies.picks,
        forge=strategies.forgeries,
        said=strategies.sayings,
        percent=strategies.percents,
    )
    def record(
        self, picks: list[int], forge: str, said: list[tuple[int, Options]], percent: float
    ) -> None:
        progress = {"type": EventType.STEP_PROGRESS, "percent": percent}
        rows = [self.holder(pick, forge) for pick in picks]
        sayings = [Saying(row.lease, self.records(row, [*said, (1, progress)])) for row in rows]
        self.sayings += sayings
        self.both(lambda store: store.record(sayings))

    @precondition(lambda self: self.sayings)
    @rule(pick=strategies.pick)
    def record_again(self, pick: int) -> None:
        self.both(lambda store: store.record([recent(self.sayings, pick)]))

    @precondition(lambda self: self.held)
    @rule(
        ends=st.lists(st.tuples(strategies.pick, strategies.outcomes), min_size=1, max_size=3),
        forge=strategies.forgeries,
        said=strategies.last_words,
        children=st.lists(strategies.jobs, max_size=2),
        luck=strategies.luck,
    )
    def settle(
        self,
        ends: list[tuple[int, outcome.Outcome]],
        forge: str,
        said: list[tuple[int, Options]],
        children: list[list[Options]],
        luck: float,
    ) -> None:
        wishes = []
        for pick, end in ends:
            row = self.holder(pick, forge)
            known = self.watch.rows.get(row.id, row)
            wanted = [self.new(options) for options in children]
            if isinstance(end, outcome.Suspended) and end.awaits:
                end = replace(end, awaits=self.awaited(wanted, pick))  # noqa: PLW2901
            # A job that was deleted and enqueued again under its old id has not been claimed yet.
            wish = outcome.settle(
                known if forge == "none" and known.token is not None else row,
                end,
                random=lambda: luck,
                records=self.records(row, said),
                children=wanted,
            )
            wishes.append(wish)
        self.apply(wishes)

    def awaited(self, children: Sequence[NewJob], pick: int) -> tuple[UUID, ...]:
        """The children, and one that may be anybody's, or nobody's."""
        return (*(child.id for child in children), self.some_id(pick))

    @rule(queues=strategies.lines, ends=st.lists(strategies.outcomes, min_size=1, max_size=4))
    def work(self, queues: Sequence[tuple[str, int]], ends: list[outcome.Outcome]) -> None:
        """A worker does what it should: claims, and settles what it got in one call."""
        rows = self.take(queues, "w2")
        wishes = [
            outcome.settle(row, end, random=lambda: 0.5)
            for row, end in zip(rows, ends, strict=False)
        ]
        if wishes:
            self.apply(wishes)

    @precondition(lambda self: self.wishes)
    @rule(picks=strategies.picks)
    def apply_again(self, picks: list[int]) -> None:
        self.apply([recent(self.wishes, pick) for pick in picks])

    def apply(self, wishes: Sequence[Transition]) -> list[Answer]:
        self.wishes += [wish for wish in wishes if wish not in self.wishes]
        ids = [wish.job_id for wish in wishes]
        return self.moved(ids, lambda store: store.apply(wishes))

    # -- operators

    @precondition(lambda self: self.ids)
    @rule(picks=strategies.picks, owner=strategies.owners)
    def cancel(self, picks: list[int], owner: str | None) -> None:
        requests = [
            CancelRequest(job_id=self.some_id(pick), by="op", reason="enough", owner=owner)
            for pick in picks
        ]
        self.both(lambda store: store.cancel(requests))

    @precondition(lambda self: self.held)
    @rule(pick=strategies.pick, end=strategies.outcomes)
    def cancel_just_before_the_end(self, pick: int, end: outcome.Outcome) -> None:
        row = self.running(pick)
        self.both(lambda store: store.cancel([CancelRequest(job_id=row.id)]))
        self.apply([outcome.settle(row, end, random=lambda: 0.5, children=[self.new([])])])

    @precondition(lambda self: self.ids)
    @rule(picks=strategies.picks, names=strategies.signals, owner=strategies.owners)
    def signal(self, picks: list[int], names: list[str], owner: str | None) -> None:
        waiting = [row.id for row in self.watch.rows.values() if row.trigger is Trigger.SUSPEND]
        signals = [
            Signal(
                job_id=recent(waiting, pick) if waiting else self.some_id(pick),
                name=name,
                value=str(pick).encode(),
                owner=owner,
            )
            for pick in picks
            for name in names
        ]
        self.moved([given.job_id for given in signals], lambda store: store.signal(signals))

    @precondition(lambda self: self.watch.waiting())
    @rule(pick=strategies.pick, trigger=strategies.waiting_moves)
    def move_a_waiting_job(self, pick: int, trigger: Trigger) -> None:
        waiting = self.watch.waiting()
        held = [row for row in waiting if row.held and trigger is Trigger.SUBMIT]
        row = recent(held or waiting, pick)
        self.apply([Transition(job_id=row.id, fence=row.fence, trigger=trigger, reason="parent")])

    @rule(queues=st.lists(st.sampled_from(strategies.QUEUES), max_size=2), paused=st.booleans())
    def pause(self, queues: list[str], paused: bool) -> None:
        self.both(lambda store: store.pause(queues, paused=paused))

    @precondition(lambda self: self.ids)
    @rule(picks=strategies.picks, owner=strategies.owners)
    def delete(self, picks: list[int], owner: str | None) -> None:
        ids = [self.some_id(pick) for pick in picks]
        self.both(lambda store: store.delete(ids, owner))

    # -- maintenance

    @rule(limit=st.integers(1, 3), luck=strategies.luck)
    def sweep(self, limit: int, luck: float) -> None:
        """A sweeper acts at once on what it sees; another will act on the same sight later."""
        self.sweep_once(limit, luck)

    def sweep_once(self, limit: int, luck: float) -> None:
        seen = self.run(self.see(limit))
        self.sights += seen
        if seen:
            self.apply([outcome.sweep(row, random=lambda: luck) for row in seen])

    @precondition(lambda self: self.sights)
    @rule(picks=strategies.picks, luck=strategies.luck)
    def sweep_late(self, picks: list[int], luck: float) -> None:
        seen = [recent(self.sights, pick) for pick in picks]
        self.apply([outcome.sweep(row, random=lambda: luck) for row in seen])

    @precondition(lambda self: self.held)
    @rule(luck=strategies.luck, taken=st.booleans())
    def two_sweepers_see_the_same(self, luck: float, taken: bool) -> None:
        """The second comes when the first is done, and perhaps when the job runs again."""
        self.let_leases_run_out()
        seen = self.run(self.see(ALL))
        for _ in range(2):
            self.apply([outcome.sweep(row, random=lambda: luck) for row in seen])
            if taken:
                self.take([(queue, ALL) for queue in strategies.QUEUES], "w3")

    async def see(self, limit: int) -> list[JobRow]:
        due = await self.both_of(lambda store: store_dump.by_id(store.due(ALL)))
        lost = await self.both_of(lambda store: store_dump.by_id(store.expired(ALL)))
        first_due = await self.insist(lambda store: store.due(limit))
        first_lost = await self.insist(lambda store: store.expired(limit))
        self.check_due(first_due, due, limit)
        until = sorted(row.lease_until or 0 for row in lost)
        assert [row.lease_until for row in first_lost] == until[:limit]
        return [*due[: limit + 1], *lost[: limit + 1]]

    @rule(
        limit=st.sampled_from([1, 2, ALL]), retention=strategies.retentions, later=strategies.later
    )
    def prune(self, limit: int, retention: Retention, later: float) -> None:
        self.clock.advance(later)
        pruned = self.run(self._prune(self.reference, retention, limit))
        assert self.run(self._prune(self.subject, retention, limit)) == pruned

    async def _prune(self, store: Store, retention: Retention, limit: int) -> Pruned:
        """To the end, because which ones go first under a small limit is not promised."""
        total = Counter[str]()
        while (pruned := await store.prune(retention, limit)) != Pruned():
            assert max(pruned.jobs, pruned.logs) <= limit
            total += Counter(jobs=pruned.jobs, logs=pruned.logs, records=pruned.records)
        logs = total["logs"] if limit == ALL else 0  # a job may lose its log before it goes, or not
        return Pruned(total["jobs"], logs, total["records"])
