"""State machine: the rules for enqueues, workers, operators and maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from windlass.core.admission.limit import Limit
from windlass.core.clock import after
from windlass.core.decisions import maintenance, outcome
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    CancelRequest,
    SignalRequest,
    Transition,
)
from windlass.core.event import EventType, Record
from windlass.core.job.lease import Claim, Lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.store import AttemptRecords, Store
from windlass.testing.conformance.model import store_dump, strategies
from windlass.testing.conformance.model.fault_rules import FaultRules
from windlass.testing.conformance.model.store_dump import ALL, recent
from windlass.testing.conformance.model.store_pair import MakeStore
from windlass.testing.conformance.model.strategies import Options


class StoreModel(FaultRules):
    """Rules for all writes, with stale, repeated and forged calls."""

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__(make_store)
        # Past calls and results, for repeats and late calls.
        self.batches: list[Sequence[NewJob]] = []
        self.claims: list[Claim] = []
        self.held: list[JobRow] = []
        self.transitions: list[Transition] = []
        self.written_records: list[AttemptRecords] = []
        self.swept_rows: list[JobRow] = []

    # -- enqueue

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
            picks, stored = values.pop("depends"), [*self.checker.rows.values()]
            parents = [recent(stored, pick) for pick in picks] if stored else []
            ids = [parent.id for parent in parents]
            values["depends_on"] = tuple(ids if picks == (0, 0) else dict.fromkeys(ids))
            values["owner"] = parents[0].owner if parents else ""
        if "retry" in values:
            ended = [row for row in self.checker.rows.values() if row.final]
            pick = values.pop("retry")
            origin = recent(ended, pick) if ended else None
            values["retry_of"] = origin.id if origin else self.some_id(pick)
            values["owner"] = origin.owner if origin else ""
        if "limit_key" in values:
            # Use its own priority. Among jobs without a key, its position depends on serials, and
            # the serials of a store may have gaps.
            values["priority"] = values.get("priority", 0) + 1
        self.ids.append(values["id"])
        return NewJob(**values)

    @initialize(
        limits=strategies.bounded,
        plain=st.integers(1, 4),
        batch=st.lists(strategies.jobs, max_size=3),
        limit=st.integers(1, 3),
    )
    def start(
        self,
        limits: list[tuple[str, Limit]],
        plain: int,
        batch: list[list[Options]],
        limit: int,
    ) -> None:
        """Enqueue and claim jobs in every history: Hypothesis leaves some rules out of each."""
        for name, bound in limits:
            self.put_limit(name, bound)
        self.enqueue_batch([[]] * plain + batch)
        self.claim_rows([("default", limit)], "w1")

    @rule(
        batch=st.lists(strategies.jobs, min_size=1, max_size=4),
        shared=strategies.shared,
        atomic=st.sampled_from([False, False, True]),
    )
    def enqueue(self, batch: list[list[Options]], shared: list[Options], atomic: bool) -> None:
        self.enqueue_batch(batch, shared, atomic=atomic)

    def enqueue_batch(
        self,
        batch: list[list[Options]],
        shared: Sequence[Options] = (),
        *,
        atomic: bool = False,
    ) -> None:
        jobs = [self.new([*shared, *options]) for options in batch]
        self.batches.append(jobs)
        self.both(lambda store: store.enqueue(jobs, atomic=atomic))

    @rule(picks=strategies.picks, length=st.integers(1, 4), atomic=st.booleans())
    def enqueue_a_flow(self, picks: list[int], length: int, atomic: bool) -> None:
        """Enqueue a chain: its first job depends on stored jobs, a later one on all before."""
        stored = [row for row in self.checker.rows.values() if not row.owner]
        ids = tuple(dict.fromkeys(recent(stored, pick).id for pick in picks)) if stored else ()
        jobs: list[NewJob] = []
        for _ in range(length):
            ids = (*ids, *(job.id for job in jobs[-1:]))
            jobs.append(self.new([{"depends_on": ids, "flow_id": strategies.FLOW}]))
        self.batches.append(jobs)
        self.both(lambda store: store.enqueue(jobs, atomic=atomic))

    @precondition(lambda self: self.batches)
    @rule(pick=strategies.pick)
    def enqueue_again(self, pick: int) -> None:
        self.both(lambda store: store.enqueue(recent(self.batches, pick)))

    @rule(batch=st.lists(strategies.jobs, min_size=1, max_size=3), lease=strategies.leases)
    def enqueue_and_claim(self, batch: list[list[Options]], lease: float | None) -> None:
        self.enqueue_batch(batch)
        self.claim_rows([(queue, ALL) for queue in strategies.QUEUES], "w1", lease)

    # -- running

    @rule(queues=strategies.claims, worker=st.sampled_from(["w1", "w2"]), lease=strategies.leases)
    def claim(self, queues: Sequence[tuple[str, int]], worker: str, lease: float | None) -> None:
        self.claim_rows(queues, worker, lease)

    def claim_rows(
        self, queues: Sequence[tuple[str, int]], worker: str, lease: float | None = None
    ) -> list[JobRow]:
        if not self.ordered:  # the claim order is undefined: claim all
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
            return rows if self.ordered else sorted(rows, key=lambda row: row.id)

        rows = self.both(call)
        self.checker.check_claimed(rows)
        self.held += [row for row in rows if row not in self.held]
        return rows

    def running(self, pick: int) -> JobRow:
        """Return a running attempt or, if there is none, an earlier one."""
        rows = [row for row in self.checker.rows.values() if row.state is State.RUNNING]
        return recent(rows or self.held, pick)

    def holder(self, pick: int, forge: str) -> JobRow:
        """Return a running attempt, one with a forged token or fence, or a stale attempt."""
        row = self.running(pick)
        match forge:
            case "token":
                return replace(row, token=self.uuid())
            case "fence":
                return replace(row, fence=row.fence + 1)
            case "stale":
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

    def records(self, row: JobRow, contents: Sequence[tuple[int, Options]]) -> list[Record]:
        """Return records numbered after the stored ones; a step of 0 repeats a number."""
        n = self.checker.rows.get(row.id, row).last_record
        records = []
        for step, values in contents:
            n += step
            records.append(Record(n=n, **values))
        return records

    @precondition(lambda self: self.held)
    @rule(
        picks=strategies.picks,
        forge=strategies.forgeries,
        contents=strategies.record_contents,
        percent=strategies.percents,
    )
    def record(
        self, picks: list[int], forge: str, contents: list[tuple[int, Options]], percent: float
    ) -> None:
        progress = {"type": EventType.STEP_PROGRESS, "percent": percent}
        rows = [self.holder(pick, forge) for pick in picks]
        written_records = [
            AttemptRecords(row.lease, self.records(row, [*contents, (1, progress)])) for row in rows
        ]
        self.written_records += written_records
        self.both(lambda store: store.record(written_records))

    @precondition(lambda self: self.written_records)
    @rule(pick=strategies.pick)
    def record_again(self, pick: int) -> None:
        self.both(lambda store: store.record([recent(self.written_records, pick)]))

    @precondition(lambda self: self.held)
    @rule(
        outcomes=st.lists(st.tuples(strategies.pick, strategies.outcomes), min_size=1, max_size=3),
        forge=strategies.forgeries,
        contents=strategies.last_records,
        children=st.lists(strategies.jobs, max_size=2),
        jitter=strategies.jitter,
    )
    def settle(
        self,
        outcomes: list[tuple[int, outcome.Outcome]],
        forge: str,
        contents: list[tuple[int, Options]],
        children: list[list[Options]],
        jitter: float,
    ) -> None:
        transitions = []
        for pick, attempt_outcome in outcomes:
            row = self.holder(pick, forge)
            stored = self.checker.rows.get(row.id, row)
            new_jobs = [self.new(options) for options in children]
            if isinstance(attempt_outcome, outcome.Suspended) and attempt_outcome.awaits:
                attempt_outcome = replace(attempt_outcome, awaits=self.awaited(new_jobs, pick))  # noqa: PLW2901
            # A job that was deleted and enqueued again under its old id has not been claimed yet.
            transition = outcome.settle(
                stored if forge == "none" and stored.token is not None else row,
                attempt_outcome,
                random=lambda: jitter,
                records=self.records(row, contents),
                children=new_jobs,
            )
            transitions.append(transition)
        self.apply(transitions)

    def awaited(self, children: Sequence[NewJob], pick: int) -> tuple[UUID, ...]:
        """Return the ids of the children and one other id, which may be unknown."""
        return (*(child.id for child in children), self.some_id(pick))

    @rule(queues=strategies.claims, outcomes=st.lists(strategies.outcomes, min_size=1, max_size=4))
    def work(self, queues: Sequence[tuple[str, int]], outcomes: list[outcome.Outcome]) -> None:
        """Claim jobs and settle them in one call, like a correct worker."""
        rows = self.claim_rows(queues, "w2")
        transitions = [
            outcome.settle(row, attempt_outcome, random=lambda: 0.5)
            for row, attempt_outcome in zip(rows, outcomes, strict=False)
        ]
        if transitions:
            self.apply(transitions)

    @precondition(lambda self: self.transitions)
    @rule(picks=strategies.picks)
    def apply_again(self, picks: list[int]) -> None:
        self.apply([recent(self.transitions, pick) for pick in picks])

    def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        self.transitions += [
            transition for transition in transitions if transition not in self.transitions
        ]
        ids = [transition.job_id for transition in transitions]
        return self.compare_moves(ids, lambda store: store.apply(transitions))

    # -- operators

    @precondition(lambda self: self.ids)
    @rule(picks=strategies.picks, owner=strategies.owners)
    def cancel(self, picks: list[int], owner: str | None) -> None:
        requests = [
            CancelRequest(job_id=self.some_id(pick), by="op", reason="enough", owner=owner)
            for pick in picks
        ]
        self.both(lambda store: store.apply(requests))

    @precondition(lambda self: self.held)
    @rule(pick=strategies.pick, attempt_outcome=strategies.outcomes)
    def cancel_just_before_the_end(self, pick: int, attempt_outcome: outcome.Outcome) -> None:
        row = self.running(pick)
        self.both(lambda store: store.apply([CancelRequest(job_id=row.id)]))
        self.apply(
            [outcome.settle(row, attempt_outcome, random=lambda: 0.5, children=[self.new([])])]
        )

    @precondition(lambda self: self.ids)
    @rule(picks=strategies.picks, names=strategies.signals, owner=strategies.owners)
    def signal(self, picks: list[int], names: list[str], owner: str | None) -> None:
        waiting = [row.id for row in self.checker.rows.values() if row.trigger is Trigger.SUSPEND]
        signals = [
            SignalRequest(
                job_id=recent(waiting, pick) if waiting else self.some_id(pick),
                name=name,
                value=str(pick).encode(),
                owner=owner,
            )
            for pick in picks
            for name in names
        ]
        self.compare_moves([given.job_id for given in signals], lambda store: store.apply(signals))

    @precondition(lambda self: self.held)
    @rule(chosen=strategies.mixed_requests, owner=strategies.owners)
    def apply_mixed(
        self, chosen: list[tuple[str, int, outcome.Outcome]], owner: str | None
    ) -> None:
        """Settle, cancel and signal in one call, often the same job."""
        requests: list[ApplyRequest] = []
        for kind, pick, attempt_outcome in chosen:
            row = self.running(pick)
            id_ = row.id if pick % 2 else self.some_id(pick)
            match kind:
                case "settle":
                    requests.append(outcome.settle(row, attempt_outcome, random=lambda: 0.5))
                case "cancel":
                    requests.append(CancelRequest(job_id=id_, by="op", owner=owner))
                case _:
                    requests.append(SignalRequest(job_id=id_, name=kind, owner=owner))
        self.compare_moves(
            [given.job_id for given in requests], lambda store: store.apply(requests)
        )

    @precondition(lambda self: self.checker.waiting())
    @rule(pick=strategies.pick, trigger=strategies.waiting_moves)
    def move_a_waiting_job(self, pick: int, trigger: Trigger) -> None:
        waiting = self.checker.waiting()
        held = [row for row in waiting if row.held and trigger is Trigger.SUBMIT]
        row = recent(held or waiting, pick)
        self.apply([Transition(job_id=row.id, fence=row.fence, trigger=trigger, reason="parent")])

    @precondition(lambda self: self.ids)
    @rule(picks=strategies.picks, owner=strategies.owners)
    def delete(self, picks: list[int], owner: str | None) -> None:
        ids = [self.some_id(pick) for pick in picks]
        self.both(lambda store: store.delete(ids, owner))

    # -- maintenance

    @rule(limit=st.integers(1, 3), jitter=strategies.jitter)
    def sweep(self, limit: int, jitter: float) -> None:
        """Sweep the rows just read; `sweep_late` may sweep the same rows again."""
        self.sweep_once(limit, jitter)

    def sweep_once(self, limit: int, jitter: float) -> None:
        seen = self.run(self.read_due(limit))
        self.swept_rows += seen
        if seen:
            self.apply([maintenance.sweep(row, random=lambda: jitter) for row in seen])

    @precondition(lambda self: self.swept_rows)
    @rule(picks=strategies.picks, jitter=strategies.jitter)
    def sweep_late(self, picks: list[int], jitter: float) -> None:
        seen = [recent(self.swept_rows, pick) for pick in picks]
        self.apply([maintenance.sweep(row, random=lambda: jitter) for row in seen])

    @precondition(lambda self: self.held)
    @rule(jitter=strategies.jitter, claimed_again=st.booleans())
    def two_sweepers_read_the_same(self, jitter: float, claimed_again: bool) -> None:
        """Sweep the same rows twice; the job may run again in between."""
        self.expire_leases()
        seen = self.run(self.read_due(ALL))
        for _ in range(2):
            self.apply([maintenance.sweep(row, random=lambda: jitter) for row in seen])
            if claimed_again:
                self.claim_rows([(queue, ALL) for queue in strategies.QUEUES], "w3")

    async def read_due(self, limit: int) -> list[JobRow]:
        rows = await self.both_of(lambda store: store_dump.by_id(store.due(ALL)))
        lost = [row for row in rows if row.state is State.RUNNING]
        due = [row for row in rows if row.state is not State.RUNNING]
        first = await self.call_subject(lambda store: store.due(limit))
        until = sorted(row.lease_until or 0 for row in lost)[:limit]
        assert [row.lease_until for row in first[: len(until)]] == until
        self.check_due(first[len(until) :], due, limit)
        return [*due[: limit + 1], *lost[: limit + 1]]
