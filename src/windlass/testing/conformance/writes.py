"""Every write there is, each in a scene where it has something to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    promote,
    rescue,
    settle,
    submit,
)
from windlass.core.decisions.retry import Policy
from windlass.core.decisions.transition import CancelRequest, Signal, Transition
from windlass.core.ids import uuid7
from windlass.core.job.dependency import OnParent
from windlass.core.job.lease import Claim
from windlass.core.job.row import NewJob
from windlass.core.records import Put
from windlass.store import Saying, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.job_histories import BROKEN, finished
from windlass.testing.factories import (
    enqueue_one,
    even,
    get_one,
    make_failure,
    make_job,
    note,
    progress,
    settle_one,
    start_one,
    step_done,
)

Call = Callable[[Store], Awaitable[Any]]
Story = Callable[[Store, VirtualClock], Awaitable[Call]]
WRITES: dict[str, Story] = {}


def story(tell: Story) -> Story:
    """It sets the scene, and answers the call that is made in it, through any handle."""
    WRITES[tell.__name__.replace("_", " ")] = tell
    return tell


# -- enqueue


def enqueueing(*jobs: NewJob) -> Call:
    return lambda handle: handle.enqueue(jobs)


@story
async def enqueue(store: Store, clock: VirtualClock) -> Call:
    return enqueueing(make_job(), make_job(hold=True), make_job(delay=5, priority=2))


@story
async def enqueue_with_all_there_is(store: Store, clock: VirtualClock) -> Call:
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
    return enqueueing(make_job(**values))


@story
async def enqueue_of_a_duplicate(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store, request_id="order-7", digest=b"1")
    await enqueue_one(store, unique_key="report")
    return enqueueing(
        make_job(request_id="order-7", digest=b"1"),
        make_job(request_id="order-7", digest=b"2"),
        make_job(unique_key="report"),
    )


@story
async def enqueue_that_makes_another_give_way(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store, unique_key="report", delay=5)
    clock.advance(1)
    return enqueueing(make_job(unique_key="report", delay=5, debounce=True))


@story
async def enqueue_of_a_retry(store: Store, clock: VirtualClock) -> Call:
    old = await finished(store)
    return enqueueing(make_job(retry_of=old.id))


@story
async def enqueue_of_a_resume(store: Store, clock: VirtualClock) -> Call:
    old = await start_one(store)
    await settle_one(store, old, BROKEN, records=[step_done(1, "voice", b"sound")])
    return enqueueing(make_job(retry_of=old.id, resume=True))


@story
async def enqueue_of_good_and_bad_together(store: Store, clock: VirtualClock) -> Call:
    return enqueueing(make_job(), make_job(queue=""), make_job(retry_of=uuid7()))


# -- running


@story
async def claim(store: Store, clock: VirtualClock) -> Call:
    for priority in (1, 3, 2):
        await enqueue_one(store, priority=priority)
    await enqueue_one(store, queue="mail")
    wish = Claim(token=uuid7(), worker="worker-1", queues=[("mail", 5), ("default", 2)])
    return lambda handle: handle.claim(wish)


@story
async def extend(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    clock.advance(10)
    leases = [job.lease, replace(job.lease, fence=7), replace(job.lease, job_id=uuid7())]
    return lambda handle: handle.extend(leases, 30)


@story
async def record(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    records = (note(1, "hello"), progress(2, 40, stage="voice"), step_done(3, "voice", b"sound"))
    sayings = [
        Saying(job.lease, records),
        Saying(replace(job.lease, token=uuid7()), (note(1, "not mine"),)),
        Saying(replace(job.lease, job_id=uuid7()), (note(1, "nobody's"),)),
    ]
    return lambda handle: handle.record(sayings)


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


def settling(name: str, *, canceled: bool) -> Story:
    async def tell(store: Store, clock: VirtualClock) -> Call:
        job = await start_one(store)
        if canceled:
            await store.cancel([CancelRequest(job_id=job.id, by="ana", reason="wrong file")])
        clock.advance(3)
        records = [note(1, "last words"), progress(2, 70), step_done(3, "voice", b"sound")]
        children = [make_job(task="child")] if name == "success" else []
        wish = settle(job, OUTCOMES[name], random=even, records=records, children=children)
        return lambda handle: handle.apply([wish])

    return tell


for each in OUTCOMES:
    WRITES[f"settle: {each}"] = settling(each, canceled=False)
    WRITES[f"settle after an accepted cancel: {each}"] = settling(each, canceled=True)


def applying(*wishes: Transition) -> Call:
    return lambda handle: handle.apply(wishes)


@story
async def rescue_of_a_dead_workers_job(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    clock.advance(31)
    return applying(rescue(job, random=even))


@story
async def rescue_for_the_last_time(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store, policy=Policy(crash_cap=1))
    clock.advance(31)
    return applying(rescue(job, random=even))


@story
async def rescue_of_a_canceled_job(store: Store, clock: VirtualClock) -> Call:
    job = await start_one(store)
    await store.cancel([CancelRequest(job_id=job.id)])
    clock.advance(31)
    return applying(rescue(job, random=even))


@story
async def promote_what_is_due(store: Store, clock: VirtualClock) -> Call:
    first = await enqueue_one(store, delay=5)
    again = await start_one(store)
    await settle_one(store, again, Snoozed(delay=5))
    clock.advance(5)
    return applying(promote(first), promote(await get_one(store, again.id)))


@story
async def promote_what_is_not_due(store: Store, clock: VirtualClock) -> Call:
    return applying(promote(await enqueue_one(store, delay=5)))


@story
async def expire(store: Store, clock: VirtualClock) -> Call:
    queued = await enqueue_one(store, expires_in=5)
    waiting = await enqueue_one(store, expires_in=5, delay=60)
    clock.advance(5)
    return applying(promote(queued), promote(waiting))


@story
async def submit_what_was_held(store: Store, clock: VirtualClock) -> Call:
    ready = await enqueue_one(store, hold=True)
    early = await enqueue_one(store, hold=True, delay=60)
    clock.advance(1)
    return applying(submit(ready.id), submit(early.id), submit(uuid7()))


# -- jobs that depend on jobs


@story
async def enqueue_of_children(store: Store, clock: VirtualClock) -> Call:
    lost = await finished(store)
    parent = await enqueue_one(store)
    return enqueueing(
        make_job(depends_on=(parent.id,), on_parent=OnParent.FAIL),
        make_job(depends_on=(lost.id, parent.id)),
        make_job(depends_on=(uuid7(),)),
    )


@story
async def enqueue_of_a_flow(store: Store, clock: VirtualClock) -> Call:
    first, flow_id = make_job(flow_id=uuid7()), uuid7()
    jobs = [first, *(make_job(depends_on=(first.id,), flow_id=flow_id) for _ in range(2))]
    return lambda handle: handle.enqueue(jobs, together=True)


@story
async def success_of_a_parent(store: Store, clock: VirtualClock) -> Call:
    parent = await start_one(store)
    other = await enqueue_one(store, delay=60)
    await enqueue_one(store, depends_on=(parent.id,))
    await enqueue_one(store, depends_on=(parent.id, other.id))
    return applying(settle(parent, Succeeded(), random=even))


@story
async def failure_of_a_parent(store: Store, clock: VirtualClock) -> Call:
    parent = await start_one(store)
    child = await enqueue_one(store, depends_on=(parent.id,))
    await enqueue_one(store, depends_on=(child.id,), on_parent=OnParent.FAIL)
    return applying(settle(parent, BROKEN, random=even))


@story
async def suspension_with_children(store: Store, clock: VirtualClock) -> Call:
    parent = await start_one(store)
    children = [make_job(), make_job()]
    waits = Suspended(awaits=tuple(child.id for child in children), timeout=60)
    return applying(settle(parent, waits, random=even, children=children))


@story
async def signal(store: Store, clock: VirtualClock) -> Call:
    running = await start_one(store)
    waiting = await start_one(store)
    await settle_one(store, waiting, Suspended(signals=0))
    done = await finished(store)
    signals = [Signal(job_id=row.id, name="go") for row in (running, waiting, done)]
    return lambda handle: handle.signal(signals)


# -- operators


@story
async def cancel(store: Store, clock: VirtualClock) -> Call:
    done = await finished(store)
    running = await start_one(store)
    queued = await enqueue_one(store)
    clock.advance(1)
    ids = [queued.id, running.id, done.id, uuid7()]
    requests = [CancelRequest(job_id=job_id, by="ana", reason="wrong file") for job_id in ids]
    return lambda handle: handle.cancel(requests)


@story
async def pause(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store)
    return lambda handle: handle.pause(["default", "mail"], paused=True)


@story
async def go_on(store: Store, clock: VirtualClock) -> Call:
    await enqueue_one(store)
    await store.pause(["default"], paused=True)
    return lambda handle: handle.pause(["default", "mail"], paused=False)


# -- small data


@story
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


@story
async def delete_records(store: Store, clock: VirtualClock) -> Call:
    await store.put_records([Put(kind="plan", key=key, value=b"1") for key in "abc"])
    return lambda handle: handle.delete_records("plan", ["a", "c", "none"])
