"""The verbs that write: each item is decided by the core, and written down."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from windlass.core import event
from windlass.core.admission.gates import in_order, line_order, touched
from windlass.core.clock import Clock, Instant, SystemClock, after, minute_of
from windlass.core.decisions import decide, maintenance, transition
from windlass.core.decisions.enqueue import (
    Admission,
    Enqueued,
    EnqueueStatus,
    Rivals,
    admit,
    give_way,
    refusal,
    refused,
)
from windlass.core.decisions.transition import (
    Answer,
    CancelRequest,
    Decision,
    Signal,
    Status,
    Transition,
)
from windlass.core.errors import RequestError
from windlass.core.job import row as job_row
from windlass.core.job.dependency import Parent
from windlass.core.job.lease import DEFAULT_LEASE, Claim, Extended, Lease, check_lease
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State, Trigger
from windlass.core.records import PAUSED, Put
from windlass.store import (
    Capabilities,
    Saying,
)
from windlass.stores.memory import gates
from windlass.stores.memory.data import Data
from windlass.stores.memory.maintenance import MISSING, MemoryKeeping


class MemoryStore(MemoryKeeping):
    def __init__(self, *, clock: Clock | None = None, _data: Data | None = None) -> None:
        self._data = _data or Data(clock or SystemClock())
        self._seen = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=False,
            fifo=True,
            priority_classes=None,
            atomic_batch=True,
            transactional=False,
            store_clock=True,
            push_wakeups=True,
            shared=False,
        )

    async def migrate(self) -> Sequence[str]:
        return []

    async def ping(self) -> Instant:
        return self._now()

    def twin(self) -> MemoryStore:
        return MemoryStore(_data=self._data)

    async def close(self) -> None:
        pass

    # -- putting in

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        with self._data.lock:
            now = self._now()
            error = refused(jobs, self._rivals) if together else None
            if error is not None:
                return [Enqueued(EnqueueStatus.REFUSED, new, error=error) for new in jobs]
            answers = [self._enqueue(new, now) for new in jobs]
            if self._open_gates(now):
                answers = [self._as_it_stands(answer) for answer in answers]
        if jobs:
            self._data.work.notify()
        return answers

    def _enqueue(self, new: NewJob, now: Instant) -> Enqueued:
        data = self._data
        try:
            job_row.check(new)
        except RequestError as error:
            return Enqueued(EnqueueStatus.REFUSED, new, error=error)
        verdict: Admission = admit(new, self._rivals(new))
        created = verdict.status is EnqueueStatus.CREATED and verdict.existing is None
        if not created:
            return Enqueued(verdict.status, new, existing=verdict.existing, error=verdict.error)
        if verdict.displace is not None:
            ends = decide.cancel(verdict.displace, give_way(verdict.displace), now)
            self._write(verdict.displace, ends, now)
            verdict = admit(new, self._rivals(new))  # it may depend on what that ended
        origin = data.jobs[new.retry_of] if new.retry_of is not None else None
        serial = data.next_serial()
        root = origin.lineage if origin else None
        its_gates = gates.gates_of(data, new, now)
        row = job_row.birth(new, now, serial, root, verdict.waiting_for, gates=its_gates)
        if row.position is not None:
            row = replace(row, position=gates.place(data, row, serial))
        if origin is not None:
            data.jobs[origin.id] = replace(origin, retried_as=row.id)
            if new.resume:
                data.steps[row.id] = dict(data.steps[origin.id])
                row = replace(row, last_step=origin.last_step)
        data.jobs[row.id] = row
        data.knocks.update(its_gates)
        if row.request_id is not None:
            data.requests[row.owner, row.request_id] = row.id
        self._link(row.id, new.depends_on, verdict.waits_for)
        if verdict.lost is not None:
            lost = verdict.lost
            self._write(row, decide.parent_ended(row, lost.id, lost.state, now), now)
        return Enqueued(EnqueueStatus.CREATED, new, existing=data.jobs[row.id])

    def _as_it_stands(self, answer: Enqueued) -> Enqueued:
        known = answer.existing
        return answer if known is None else replace(answer, existing=self._data.jobs[known.id])

    def _link(self, child: UUID, parents: Sequence[UUID], waits_for: Sequence[UUID]) -> None:
        data, still = self._data, set(waits_for)
        edges = data.edges.setdefault(child, {}) if parents else {}
        for parent in parents:
            edges[parent] = parent in still
            if child not in data.dependents[parent]:
                data.dependents[parent].append(child)
        for parent in waits_for:
            data.jobs[parent] = replace(data.jobs[parent], awaited=True)

    def _rivals(self, new: NewJob) -> Rivals:
        data = self._data
        request = None
        if new.request_id is not None:
            request = data.requests.get((new.owner, new.request_id))
        origin = data.jobs.get(new.retry_of) if new.retry_of else None
        retry = None
        if origin is not None:
            of_lineage = (r for r in data.jobs.values() if r.root_id == origin.lineage)
            retry = next((row for row in of_lineage if not row.final), None)
        same_key = None
        if new.unique_key is not None:
            wanted = (new.owner, new.task, new.unique_key)
            for row in data.jobs.values():
                if (row.owner, row.task, row.unique_key) == wanted and not row.final:
                    same_key = row
        return Rivals(
            same_id=data.jobs.get(new.id),
            same_request=data.jobs[request] if request is not None else None,
            same_key=same_key,
            origin=origin,
            active_retry=retry,
            parents=self._parents(new.depends_on),
        )

    def _parents(self, ids: Sequence[UUID]) -> dict[UUID, Parent]:
        rows = [row for id_ in ids if (row := self._data.jobs.get(id_)) is not None]
        return {row.id: Parent(row.id, row.owner, row.state) for row in rows}

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        data = self._data
        self._seen = data.work.count
        if not any(limit for _, limit in claim.queues):
            return []
        with data.lock:
            now = self._now()
            held = [
                row
                for row in data.jobs.values()
                if row.state is State.RUNNING and row.token == claim.token
            ]
            if held:
                return sorted(held, key=_claim_order(claim))
            rows: list[JobRow] = []
            for queue, limit in claim.queues:
                rows += [self._take(row, claim, now) for row in self._line(queue, limit, now)]
        data.news.tell(row.id for row in rows)
        return rows

    def _take(self, row: JobRow, claim: Claim, now: Instant) -> JobRow:
        lease = claim.lease or row.lease_seconds or DEFAULT_LEASE
        changes = decide.claim(row, token=claim.token, worker=claim.worker, lease=lease, now=now)
        taken = self._data.jobs[row.id] = replace(row, **changes)
        return taken

    def _line(self, queue: str, limit: int, now: Instant) -> list[JobRow]:
        if self._live(PAUSED, queue):
            return []
        ready = (
            row
            for row in self._data.jobs.values()
            if row.state is State.QUEUED
            and row.queue == queue
            and not maintenance.too_late(row, now)
        )
        return heapq.nsmallest(limit, ready, key=line_order)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        check_lease(seconds)
        data, answers = self._data, []
        with data.lock:
            until = after(self._now(), seconds)
            for lease in leases:
                row = data.jobs.get(lease.job_id)
                if row is None or row.state is not State.RUNNING or row.lease != lease:
                    answers.append(Extended(lease_until=None))
                    continue
                lasts = max(until, row.lease_until or 0)
                data.jobs[row.id] = replace(row, lease_until=lasts)
                answers.append(Extended(lease_until=lasts, cancel_requested=row.cancel_requested))
        return answers

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        with self._data.lock:
            answers = [self._apply(wish, self._now()) for wish in transitions]
            self._open_gates(self._now())
        if transitions:
            self._data.work.notify()
            self._data.news.tell(wish.job_id for wish in transitions)
        return answers

    def _apply(self, wish: Transition, now: Instant) -> Answer:
        try:
            transition.check(wish)
        except RequestError as error:
            return Answer(Status.REFUSED, error=error)
        row = self._data.jobs.get(wish.job_id)
        if row is None:
            return MISSING
        return self._write(row, decide.decide(row, wish, now, partial(self._past, row.id)), now)

    def _past(self, job_id: UUID, fence: int) -> tuple[UUID, Trigger] | None:
        for line in self._data.logs[job_id]:
            if line.type == event.ATTEMPT and line.fence == fence:
                return UUID(line.facts["token"]), Trigger(line.facts["outcome"])
        return None

    def _write(self, row: JobRow, decision: Decision, now: Instant) -> Answer:
        data = self._data
        error = refusal(decision.children, self._rivals)
        if error is not None:
            return Answer(Status.REFUSED, row.state, error)
        if decision.changes:
            changed = replace(row, **decision.changes)
            if decision.queue:
                # From one gate to the next it stays as old as it was.
                moves = row.gate is not None and changed.gate is not None
                arrival = (row.position or 0) if moves else data.next_serial()
                changed = replace(changed, position=gates.place(data, changed, arrival))
            data.jobs[row.id] = changed
        data.knocks.update(touched(row, decision))
        data.logs[row.id] += decision.log
        data.steps[row.id] |= {point.step: point for point in decision.checkpoints}
        if decision.tally is not None:
            tally = decision.tally
            key = (minute_of(now), row.queue, row.task, tally.outcome)
            count, wait, run = data.rollups.get(key, (0, 0, 0))
            data.rollups[key] = (count + 1, wait + tally.wait, run + tally.run)
        for child in decision.children:
            self._enqueue(child, now)
        if decision.awaits:
            return self._suspend(data.jobs[row.id], decision.awaits, now)
        if decision.unwait:
            edges = data.edges[row.id]
            data.edges[row.id] = dict.fromkeys(edges, False)
        if decision.ends and row.awaited:
            data.ended.append(row.id)
            self._tell_dependents(now)
        return decision.answer

    def _open_gates(self, now: Instant) -> bool:
        """Let in whom the writes of a call made room for; whether there was any gate to look at."""
        data = self._data
        any_at_all = bool(data.knocks)
        while data.knocks:
            gate = in_order(data.knocks)[0]
            for row in gates.open_gate(data, gate, now):
                self._write(row, decide.let_in(row, now), now)
                data.news.tell([row.id])
            data.knocks.discard(gate)
        return any_at_all

    def _suspend(self, row: JobRow, awaits: Sequence[UUID], now: Instant) -> Answer:
        seen = self._parents(awaits)
        waits_for = [id_ for id_, it in seen.items() if it.open and it.owner == row.owner]
        self._link(row.id, list(seen), waits_for)
        return self._write(row, decide.suspended(row, len(waits_for), now), now)

    def _tell_dependents(self, now: Instant) -> None:
        """One after the other: a chain may be longer than calls can be deep."""
        data = self._data
        if data.telling:
            return
        data.telling = True
        try:
            while data.ended:
                parent = data.jobs[data.ended.pop(0)]
                for child in data.dependents[parent.id]:
                    if data.edges[child].get(parent.id):
                        data.edges[child][parent.id] = False
                        row = data.jobs[child]
                        told = decide.parent_ended(row, parent.id, parent.state, now)
                        self._write(row, told, now)
                        data.news.tell([child])
        finally:
            data.telling = False

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        with self._data.lock:
            answers = [self._record(saying) for saying in sayings]
        self._data.news.tell(saying.lease.job_id for saying in sayings)
        return answers

    def _record(self, saying: Saying) -> Answer:
        lease, now = saying.lease, self._now()
        try:
            transition.check_records(saying.records)
        except RequestError as error:
            return Answer(Status.REFUSED, error=error)
        row = self._data.jobs.get(lease.job_id)
        if row is None:
            return MISSING
        decision = decide.record(row, lease.fence, lease.token, saying.records, now)
        return self._write(row, decision, now)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:  # noqa: ARG002 - one line
        return await self._data.work.wait(self._seen, timeout)

    # -- operators

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        with self._data.lock:
            answers = [self._cancel(request, self._now()) for request in requests]
            self._open_gates(self._now())
        self._data.news.tell(request.job_id for request in requests)
        return answers

    def _cancel(self, request: CancelRequest, now: Instant) -> Answer:
        try:
            transition.check_cancel(request)
        except RequestError as error:
            return Answer(Status.REFUSED, error=error)
        row = self._visible(request.job_id, request.owner)
        return MISSING if row is None else self._write(row, decide.cancel(row, request, now), now)

    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        with self._data.lock:
            answers = [self._signal(given, self._now()) for given in signals]
            self._open_gates(self._now())
        if signals:
            self._data.work.notify()
            self._data.news.tell(given.job_id for given in signals)
        return answers

    def _signal(self, given: Signal, now: Instant) -> Answer:
        try:
            transition.check_signal(given)
        except RequestError as error:
            return Answer(Status.REFUSED, error=error)
        row = self._visible(given.job_id, given.owner)
        if row is None:
            return MISSING
        known = given.step in self._data.steps[row.id]
        return self._write(row, decide.signal(row, given, now, known=known), now)

    async def pause(self, queues: Sequence[str], *, paused: bool) -> None:
        if paused:
            await self.put_records([Put(kind=PAUSED, key=queue, value=b"") for queue in queues])
        else:
            await self.delete_records(PAUSED, queues)
            self._data.work.notify()


def _claim_order(claim: Claim) -> Callable[[JobRow], tuple[int, ...]]:
    """A repeat answers in the order of the call's queues, then as the line went."""
    place = {queue: index for index, (queue, _) in enumerate(claim.queues)}
    return lambda row: (place.get(row.queue, len(place)), *line_order(row))
