"""Write methods of the memory store. The core decides each item; the store applies the decision."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.admission.gates import affected_gates, lock_order
from windlass.core.admission.queue_position import queue_order
from windlass.core.clock import Instant, after, minute_of
from windlass.core.decisions import decide, maintenance
from windlass.core.decisions.enqueue import (
    Conflicts,
    EnqueueDecision,
    EnqueueResult,
    EnqueueStatus,
    batch_conflict,
    batch_error,
    cancel_displaced,
    decide_enqueue,
)
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    Decision,
    Status,
    check_records,
    check_request,
)
from windlass.core.errors import RequestError
from windlass.core.event import ATTEMPT
from windlass.core.job.dependency import Parent
from windlass.core.job.lease import DEFAULT_LEASE, Claim, ExtendResult, Lease, check_lease
from windlass.core.job.new_job import NewJob, check_new_job
from windlass.core.job.row import JobRow, new_row
from windlass.core.job.state import State, Trigger
from windlass.core.versioned_record import PAUSED
from windlass.store import AttemptRecords
from windlass.stores.memory import gates
from windlass.stores.memory.data import MemoryData
from windlass.stores.memory.maintenance import MISSING, MemoryMaintenance


class MemoryWrites(MemoryMaintenance):
    """Store methods that create and change jobs."""

    _seen: int  # count of work wakeups at the last claim

    # -- enqueue

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        with self._data.lock:
            now = self._now()
            error = batch_error(jobs, self._conflicts) if atomic else None
            if error is not None:
                return [EnqueueResult(EnqueueStatus.REFUSED, new, error=error) for new in jobs]
            results = [self._enqueue(new, now) for new in jobs]
            if self._open_gates(now):
                results = [self._with_current_row(result) for result in results]
        if jobs:
            self._data.work.notify()
        return results

    def _enqueue(self, new: NewJob, now: Instant) -> EnqueueResult:
        data = self._data
        try:
            check_new_job(new)
        except RequestError as error:
            return EnqueueResult(EnqueueStatus.REFUSED, new, error=error)
        decision: EnqueueDecision = decide_enqueue(new, self._conflicts(new))
        created = decision.status is EnqueueStatus.CREATED and decision.existing is None
        if not created:
            return EnqueueResult(
                decision.status, new, existing=decision.existing, error=decision.error
            )
        if decision.displace is not None:
            cancellation = decide.cancel(
                decision.displace, cancel_displaced(decision.displace), now
            )
            self._write(decision.displace, cancellation, now)
            # The new job may depend on the displaced one.
            decision = decide_enqueue(new, self._conflicts(new))
        origin = data.jobs[new.retry_of] if new.retry_of is not None else None
        serial = data.next_serial()
        root = origin.lineage if origin else None
        job_gates = gates.gates_of(data, new, now)
        row = new_row(new, now, serial, root, decision.waiting_for, gates=job_gates)
        if row.position is not None:
            row = replace(row, position=gates.queue_position(data, row, serial))
        if origin is not None:
            data.jobs[origin.id] = replace(origin, retried_as=row.id)
            if new.resume:
                data.steps[row.id] = dict(data.steps[origin.id])
                row = replace(row, last_step=origin.last_step)
        data.jobs[row.id] = row
        data.gates_to_check.update(job_gates)
        if row.request_id is not None:
            data.requests[row.owner, row.request_id] = row.id
        self._link(row.id, new.depends_on, decision.waits_for)
        if decision.failed_parent is not None:
            parent = decision.failed_parent
            self._write(row, decide.parent_ended(row, parent.id, parent.state, now), now)
        return EnqueueResult(EnqueueStatus.CREATED, new, existing=data.jobs[row.id])

    def _with_current_row(self, result: EnqueueResult) -> EnqueueResult:
        row = result.existing
        return result if row is None else replace(result, existing=self._data.jobs[row.id])

    def _link(self, child: UUID, parents: Sequence[UUID], waits_for: Sequence[UUID]) -> None:
        data, open_parents = self._data, set(waits_for)
        edges = data.edges.setdefault(child, {}) if parents else {}
        for parent in parents:
            edges[parent] = parent in open_parents
            if child not in data.dependents[parent]:
                data.dependents[parent].append(child)
        for parent in waits_for:
            data.jobs[parent] = replace(data.jobs[parent], awaited=True)

    def _conflicts(self, new: NewJob) -> Conflicts:
        data = self._data
        request = None
        if new.request_id is not None:
            request = data.requests.get((new.owner, new.request_id))
        origin = data.jobs.get(new.retry_of) if new.retry_of else None
        retry = None
        if origin is not None:
            lineage = (r for r in data.jobs.values() if r.root_id == origin.lineage)
            retry = next((row for row in lineage if not row.final), None)
        same_key = None
        if new.unique_key is not None:
            key = (new.owner, new.task, new.unique_key)
            for row in data.jobs.values():
                if (row.owner, row.task, row.unique_key) == key and not row.final:
                    same_key = row
        return Conflicts(
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
                rows += [self._claim(row, claim, now) for row in self._claimable(queue, limit, now)]
        data.job_wakeups.notify(row.id for row in rows)
        return rows

    def _claim(self, row: JobRow, claim: Claim, now: Instant) -> JobRow:
        lease = claim.lease or row.lease_seconds or DEFAULT_LEASE
        changes = decide.claim(row, token=claim.token, worker=claim.worker, lease=lease, now=now)
        claimed = self._data.jobs[row.id] = replace(row, **changes)
        return claimed

    def _claimable(self, queue: str, limit: int, now: Instant) -> list[JobRow]:
        if self._unexpired(PAUSED, queue):
            return []
        ready = (
            row
            for row in self._data.jobs.values()
            if row.state is State.QUEUED
            and row.queue == queue
            and not maintenance.expired(row, now)
        )
        return heapq.nsmallest(limit, ready, key=queue_order)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        check_lease(seconds)
        data, results = self._data, []
        with data.lock:
            until = after(self._now(), seconds)
            for lease in leases:
                row = data.jobs.get(lease.job_id)
                if row is None or row.state is not State.RUNNING or row.lease != lease:
                    results.append(ExtendResult(lease_until=None))
                    continue
                lease_until = max(until, row.lease_until or 0)
                data.jobs[row.id] = replace(row, lease_until=lease_until)
                results.append(
                    ExtendResult(lease_until=lease_until, cancel_requested=row.cancel_requested)
                )
        return results

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        with self._data.lock:
            results = [self._apply(request, self._now()) for request in requests]
            self._open_gates(self._now())
        if requests:
            self._data.work.notify()
            self._data.job_wakeups.notify(request.job_id for request in requests)
        return results

    def _apply(self, request: ApplyRequest, now: Instant) -> ApplyResult:
        try:
            check_request(request)
        except RequestError as error:
            return ApplyResult(Status.REFUSED, error=error)
        row = self._data.jobs.get(request.job_id)
        if row is None:
            return MISSING
        return self._write(
            row, decide.decide(row, request, now, MemoryStoredJob(self._data, row)), now
        )

    def _write(self, row: JobRow, decision: Decision, now: Instant) -> ApplyResult:
        data = self._data
        error = batch_conflict(decision.children, self._conflicts)
        if error is not None:
            return ApplyResult(Status.REFUSED, row.state, error)
        if decision.changes:
            changed = replace(row, **decision.changes)
            if decision.needs_position:
                # A job that moves to its next gate keeps its order of arrival.
                moves = row.gate is not None and changed.gate is not None
                arrival = (row.position or 0) if moves else data.next_serial()
                changed = replace(changed, position=gates.queue_position(data, changed, arrival))
            data.jobs[row.id] = changed
        data.gates_to_check.update(affected_gates(row, decision))
        data.logs[row.id] += decision.log
        data.steps[row.id] |= {point.step: point for point in decision.checkpoints}
        if decision.sample is not None:
            sample = decision.sample
            key = (minute_of(now), row.queue, row.task, sample.outcome)
            count, wait, run = data.rollups.get(key, (0, 0, 0))
            data.rollups[key] = (count + 1, wait + sample.wait, run + sample.run)
        for child in decision.children:
            self._enqueue(child, now)
        if decision.awaits:
            return self._suspend(data.jobs[row.id], decision.awaits, now)
        if decision.clear_waits:
            edges = data.edges[row.id]
            data.edges[row.id] = dict.fromkeys(edges, False)
        if decision.ends_job and row.awaited:
            data.ended.append(row.id)
            self._update_dependents(now)
        return decision.result

    def _open_gates(self, now: Instant) -> bool:
        """Admit jobs at the gates that this call affected; return False if there were none."""
        data = self._data
        checked = bool(data.gates_to_check)
        while data.gates_to_check:
            gate = lock_order(data.gates_to_check)[0]
            for row in gates.open_gate(data, gate, now):
                self._write(row, decide.admit(row, now), now)
                data.job_wakeups.notify([row.id])
            data.gates_to_check.discard(gate)
        return checked

    def _suspend(self, row: JobRow, awaits: Sequence[UUID], now: Instant) -> ApplyResult:
        parents = self._parents(awaits)
        waits_for = [
            id_ for id_, parent in parents.items() if parent.open and parent.owner == row.owner
        ]
        self._link(row.id, list(parents), waits_for)
        return self._write(row, decide.after_suspend(row, len(waits_for), now), now)

    def _update_dependents(self, now: Instant) -> None:
        """Update the dependents of ended jobs, iteratively: a chain may exceed the stack."""
        data = self._data
        if data.updating_dependents:
            return
        data.updating_dependents = True
        try:
            while data.ended:
                parent = data.jobs[data.ended.pop(0)]
                for child in data.dependents[parent.id]:
                    if data.edges[child].get(parent.id):
                        data.edges[child][parent.id] = False
                        row = data.jobs[child]
                        decision = decide.parent_ended(row, parent.id, parent.state, now)
                        self._write(row, decision, now)
                        data.job_wakeups.notify([child])
        finally:
            data.updating_dependents = False

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        with self._data.lock:
            results = [self._record(entry) for entry in attempt_records]
        self._data.job_wakeups.notify(entry.lease.job_id for entry in attempt_records)
        return results

    def _record(self, batch: AttemptRecords) -> ApplyResult:
        lease, now = batch.lease, self._now()
        try:
            check_records(batch.records)
        except RequestError as error:
            return ApplyResult(Status.REFUSED, error=error)
        row = self._data.jobs.get(lease.job_id)
        if row is None:
            return MISSING
        decision = decide.record(row, lease.fence, lease.token, batch.records, now)
        return self._write(row, decision, now)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:  # noqa: ARG002 - one wake-up for all queues
        return await self._data.work.wait(self._seen, timeout)


class MemoryStoredJob:
    """Data of a job outside its row, for `decide`."""

    def __init__(self, data: MemoryData, row: JobRow) -> None:
        self.owner = row.owner
        self._data = data
        self._id = row.id

    def past_outcome(self, fence: int) -> tuple[UUID, Trigger] | None:
        for entry in self._data.logs[self._id]:
            if entry.type == ATTEMPT and entry.fence == fence:
                return UUID(entry.data["token"]), Trigger(entry.data["outcome"])
        return None

    def has_step(self, step: str) -> bool:
        return step in self._data.steps[self._id]


def _claim_order(claim: Claim) -> Callable[[JobRow], tuple[int, ...]]:
    """Order a repeated claim like the first: by the queues of the call, then by queue order."""
    rank = {queue: index for index, (queue, _) in enumerate(claim.queues)}
    return lambda row: (rank.get(row.queue, len(rank)), *queue_order(row))
