"""All writes of a store, each in a scenario where it changes something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from windlass.core.decisions.maintenance import promote, rescue
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    settle,
)
from windlass.core.decisions.transition import CancelRequest, SignalRequest, Transition, submit
from windlass.core.ids import uuid7
from windlass.core.job.dependency import OnParent
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.versioned_record import Put
from windlass.store import AttemptRecords, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import BROKEN, finished
from windlass.testing.factories import (
    checkpoint_record,
    enqueue_one,
    get_one,
    log_record,
    make_failure,
    make_job,
    no_jitter,
    progress_record,
    set_paused,
    settle_one,
    start_one,
)

Call = Callable[[Store], Awaitable[Any]]
Scenario = Callable[[Store, VirtualClock], Awaitable[Call]]
WRITES: dict[str, Scenario] = {}


def scenario(prepare: Scenario) -> Scenario:
    """Register a function that prepares a store and returns the write, for any handle."""
    WRITES[prepare.__name__.replace("_", " ")] = prepare
    return prepare


# -- enqueue


def enqueue_call(*jobs: NewJob) -> Call:
    return lambda handle: handle.enqueue(jobs)


@scenario
async def enqueue(store: Store, clock: VirtualClock) -> Call:
    return enqueue_call(make_job(), make_job(hold=True), make_job(delay=5, priority=2))


@scenario
async def enqueue_with_all_fields(store: Store, clock: VirtualClock) -> Call:
    values: dict[str, Any] = {
        "payload": b"x" * 50_000,
        "expires_in": 60,
        "policy": Policy(max_retries=7, timeout=2.5),
        "lease": 12.5,
        "owner": "ana",
        "team": "blue",
        "tags": ("film", "draft"),
        "headers": {"correlation-id": "c-1"},
        "request_id": "order-7",
        "digest": b"\x01\x02",
        "unique_key": "report",
    }
    return enqueue_call(make_job(**values))


@scenario
async def enqueue_of_a_duplicate(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store, request_id="order-7", digest=b"1")
    await enqueue_one(store, unique_key="report")
    return enqueue_call(
        make_job(request_id="order-7", digest=b"1"),
        make_job(request_id="order-7", digest=b"2"),
        make_job(unique_key="report"),
    )


@scenario
async def enqueue_that_displaces_a_job(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store, unique_key="report", delay=5)
    clock.advance(1)
    return enqueue_call(make_job(unique_key="report", delay=5, debounce=True))


@scenario
async def enqueue_of_a_retry(store: Store, clock: VirtualClock) -> Call:
    old = await finished(store)
    return enqueue_call(make_job(retry_of=old.id))


@scenario
async def enqueue_of_a_resume(store: Store, clock: VirtualClock) -> Call:
    old = await start_one(store)
    await settle_one(store, old, BROKEN, records=[checkpoint_record(1, "voice", b"sound")])
    return enqueue_call(make_job(retry_of=old.id, resume=True))


@scenario
async def enqueue_of_valid_and_invalid_jobs(store: Store, clock: VirtualClock) -> Call:
    return enqueue_call(make_job(), make_job(queue=""), make_job(retry_of=uuid7()))


# -- running


@scenario
async def claim(store: Store, clock: VirtualClock) -> Call:
    for priority in (1, 3, 2):
        await enqueue_one(store, priority=priority)
    await enqueue_one(store, queue="mail")
    request = Claim(token=uuid7(), worker="worker-1", queues=[("mail", 5), ("default", 2)])
    return lambda handle: handle.claim(request)


@scenario
async def extend(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    clock.advance(10)
    leases = [job.lease, replace(job.lease, fence=7), replace(job.lease, job_id=uuid7())]
    return lambda handle: handle.extend(leases, 30)


@scenario
async def record(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    records = (
        log_record(1, "hello"),
        progress_record(2, 40, stage="voice"),
        checkpoint_record(3, "voice", b"sound"),
    )
    attempt_records = [
        AttemptRecords(job.lease, records),
        AttemptRecords(replace(job.lease, token=uuid7()), (log_record(1, "not mine"),)),
        AttemptRecords(replace(job.lease, job_id=uuid7()), (log_record(1, "unknown job"),)),
    ]
    return lambda handle: handle.record(attempt_records)


OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded(result=b"42"),
    "failure": BROKEN,
    "retry": Failed(failure=make_failure(body=b"why"), delay=60),
    "retry at once": Failed(failure=make_failure(), delay=0),
    "release": Released(),
    "snooze": Snoozed(delay=60),
    "snooze of no time": Snoozed(delay=0),
    "suspend": Suspended(),
    "suspend with a timeout": Suspended(timeout=60),
    "abort": Aborted(reason="nothing to do"),
}


def settle_scenario(name: str, *, canceled: bool) -> Scenario:
    async def prepare(store: Store, clock: VirtualClock) -> Call:
        job = await start_one(store)
        if canceled:
            await store.apply([CancelRequest(job_id=job.id, by="ana", reason="wrong file")])
        clock.advance(3)
        records = [
            log_record(1, "last record"),
            progress_record(2, 70),
            checkpoint_record(3, "voice", b"sound"),
        ]
        children = [make_job(task="child")] if name == "success" else []
        transition = settle(
            job, OUTCOMES[name], random=no_jitter, records=records, children=children
        )
        return lambda handle: handle.apply([transition])

    return prepare


for each in OUTCOMES:
    WRITES[f"settle: {each}"] = settle_scenario(each, canceled=False)
    WRITES[f"settle after an accepted cancel: {each}"] = settle_scenario(each, canceled=True)


def apply_call(*transitions: Transition) -> Call:
    return lambda handle: handle.apply(transitions)


@scenario
async def rescue_after_a_worker_death(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    clock.advance(31)
    return apply_call(rescue(job, random=no_jitter))


@scenario
async def rescue_at_the_crash_cap(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store, policy=Policy(crash_cap=1))
    clock.advance(31)
    return apply_call(rescue(job, random=no_jitter))


@scenario
async def rescue_of_a_canceled_job(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    await store.apply([CancelRequest(job_id=job.id)])
    clock.advance(31)
    return apply_call(rescue(job, random=no_jitter))


@scenario
async def promote_of_due_jobs(store: Store, clock: VirtualClock) -> Call:
    first = await enqueue_one(store, delay=5)
    again = await start_one(store)
    await settle_one(store, again, Snoozed(delay=5))
    clock.advance(5)
    return apply_call(promote(first), promote(await get_one(store, again.id)))


@scenario
async def promote_of_a_job_before_its_due_time(store: Store, clock: VirtualClock) -> Call:
    return apply_call(promote(await enqueue_one(store, delay=5)))


@scenario
async def expire(store: Store, clock: VirtualClock) -> Call:
    queued = await enqueue_one(store, expires_in=5)
    waiting = await enqueue_one(store, expires_in=5, delay=60)
    clock.advance(5)
    return apply_call(promote(queued), promote(waiting))


@scenario
async def submit_of_held_jobs(store: Store, clock: VirtualClock) -> Call:
    ready = await enqueue_one(store, hold=True)
    early = await enqueue_one(store, hold=True, delay=60)
    clock.advance(1)
    return apply_call(submit(ready.id), submit(early.id), submit(uuid7()))


# -- dependencies


@scenario
async def enqueue_of_children(store: Store, clock: VirtualClock) -> Call:
    lost = await finished(store)
    parent = await enqueue_one(store)
    return enqueue_call(
        make_job(depends_on=(parent.id,), on_parent=OnParent.FAIL),
        make_job(depends_on=(lost.id, parent.id)),
        make_job(depends_on=(uuid7(),)),
    )


@scenario
async def enqueue_of_a_flow(store: Store, clock: VirtualClock) -> Call:
    first, flow_id = make_job(flow_id=uuid7()), uuid7()
    jobs = [first, *(make_job(depends_on=(first.id,), flow_id=flow_id) for _ in range(2))]
    return lambda handle: handle.enqueue(jobs, atomic=True)


@scenario
async def success_of_a_parent(store: Store, clock: VirtualClock) -> Call:
    parent = await start_one(store)
    other = await enqueue_one(store, delay=60)
    await enqueue_one(store, depends_on=(parent.id,))
    await enqueue_one(store, depends_on=(parent.id, other.id))
    return apply_call(settle(parent, Succeeded(), random=no_jitter))


@scenario
async def failure_of_a_parent(store: Store, clock: VirtualClock) -> Call:
    parent = await start_one(store)
    child = await enqueue_one(store, depends_on=(parent.id,))
    await enqueue_one(store, depends_on=(child.id,), on_parent=OnParent.FAIL)
    return apply_call(settle(parent, BROKEN, random=no_jitter))


@scenario
async def suspension_with_children(store: Store, clock: VirtualClock) -> Call:
    parent = await start_one(store)
    children = [make_job(), make_job()]
    waits = Suspended(awaits=tuple(child.id for child in children), timeout=60)
    return apply_call(settle(parent, waits, random=no_jitter, children=children))


@scenario
async def signal(store: Store, clock: VirtualClock) -> Call:
    running = await start_one(store)
    waiting = await start_one(store)
    await settle_one(store, waiting, Suspended(signals=0))
    done = await finished(store)
    signals = [SignalRequest(job_id=row.id, name="go") for row in (running, waiting, done)]
    return lambda handle: handle.apply(signals)


# -- operators


@scenario
async def cancel(store: Store, clock: VirtualClock) -> Call:
    done = await finished(store)
    running = await start_one(store)
    queued = await enqueue_one(store)
    clock.advance(1)
    ids = [queued.id, running.id, done.id, uuid7()]
    requests = [CancelRequest(job_id=job_id, by="ana", reason="wrong file") for job_id in ids]
    return lambda handle: handle.apply(requests)


@scenario
async def pause(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store)
    return lambda handle: set_paused(handle, ["default", "mail"], paused=True)


@scenario
async def resume_queue(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store)
    await set_paused(store, ["default"], paused=True)
    return lambda handle: set_paused(handle, ["default", "mail"], paused=False)


# -- records


@scenario
async def put_records(store: Store, clock: VirtualClock) -> Call:
    await store.put_records([Put(kind="plan", key="seen", value=b"1")])
    puts = [
        Put(kind="plan", key="new", value=b"1"),
        Put(kind="plan", key="first", value=b"1", expected=0),
        Put(kind="plan", key="seat", value=b"ana", expected=0, ttl=30),
        Put(kind="plan", key="pulse", value=b"here", ttl=30),
        Put(kind="plan", key="seen", value=b"2", expected=1),
        Put(kind="plan", key="unseen", value=b"2", expected=9),
    ]
    return lambda handle: handle.put_records(puts)


@scenario
async def delete_records(store: Store, clock: VirtualClock) -> Call:
    await store.put_records([Put(kind="plan", key=key, value=b"1") for key in "abc"])
    return lambda handle: handle.delete_records("plan", ["a", "c", "none"])
