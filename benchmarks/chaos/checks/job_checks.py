"""Checks of every job: existence, end, attempts, log, effects and results. No Windlass code.

Each check is a function of the evidence that yields one message per violation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.stores import Row

MICROSECONDS = 1_000_000
_FINAL = {"succeeded", "failed", "canceled"}
LOST = {"crash", "give-up"}  # outcomes of attempts with an expired lease
PROCESS_KILLERS = {"killer", "segfault", "memory_hog"}  # tasks that kill their process
_INSTANTS = (
    "created_at", "queued_at", "started_at", "first_started_at", "ended_at", "updated_at",
    "cancel_at",
)  # fmt: skip
# Crashes of the last attempt, which have no log line: the crash that reaches the cap, or the crash
# of a job with an accepted cancel.
_LAST_CRASH = {"failed": {1}, "canceled": {0, 1}, "succeeded": {0}}


def acknowledged_jobs_exist_once(evidence: Evidence) -> Iterator[str]:
    counts = Counter(row["id"] for row in evidence.jobs)
    for job in evidence.acknowledged:
        if not counts[job]:
            yield f"job {job} was acknowledged and is lost"
    for job, count in counts.items():
        if count > 1:
            yield f"job {job} exists {count} times"
        if job not in evidence.requested:
            yield f"job {job} exists but was never enqueued"


def every_job_ended_as_expected(evidence: Evidence) -> Iterator[str]:
    """Only jobs that kill their process fail, and only jobs with a request are canceled."""
    for row in evidence.jobs:
        job, state = row["id"], row["state"]
        if state not in _FINAL:
            yield f"job {job} is still {state}"
        elif row["ended_at"] is None or row["lease_until"] is not None:
            yield f"job {job} is {state} without ended_at, or with a lease"
        if state == "canceled" and job not in evidence.cancels:
            yield f"job {job} was canceled without a request"
        if (state == "failed") != (
            evidence.requested.get(job) in PROCESS_KILLERS
        ) and state in _FINAL:
            yield f"job {job} ({evidence.requested.get(job)}) ended {state}: {row['error']}"


def ends_were_counted_once(evidence: Evidence) -> Iterator[str]:
    """The store counts each end once, so a job that ended twice shows in the counts."""
    found = Counter(row["state"] for row in evidence.jobs if row["state"] in _FINAL)
    found["retrying"] = sum(len(evidence.attempts(row)) for row in evidence.jobs)
    for state in sorted({*found, *evidence.outcomes}):
        if found[state] != evidence.outcomes.get(state, 0):
            counted = evidence.outcomes.get(state, 0)
            yield f"{counted} ends were counted as {state}; the tables have {found[state]}"


def results_are_of_the_last_attempt(evidence: Evidence) -> Iterator[str]:
    for row in evidence.jobs:
        job, fence = row["id"], row["fence"]
        if row["state"] != "succeeded":
            if row["result"] is not None:
                yield f"job {job} is {row['state']} and has a result"
            continue
        if json.loads(row["result"] or b"null") != {"job": job, "fence": fence}:
            yield f"the result of job {job} is {row['result']!r}; its fence is {fence}"
        ends = [line for line in evidence.runs.get(job, ()) if line["phase"] == "end"]
        if [line["fence"] for line in ends].count(fence) != 1:
            yield f"job {job} succeeded with fence {fence}, which did not end once in the ledger"


def fences_rise(evidence: Evidence) -> Iterator[str]:
    """Each claim has a higher fence. A frozen worker may start an attempt that it has lost."""
    for row in evidence.jobs:
        starts = [line for line in evidence.runs.get(row["id"], ()) if line["phase"] == "start"]
        lost = {past["fence"] for past in evidence.attempts(row) if past["data"]["outcome"] in LOST}
        highest = 0
        for line in starts:
            if line["fence"] <= highest and line["fence"] not in lost:
                yield f"job {row['id']} started with fence {line['fence']} after {highest}"
            highest = max(highest, line["fence"])
        twice = [fence for fence, n in Counter(line["fence"] for line in starts).items() if n > 1]
        if twice or highest > row["fence"]:
            job, fence = row["id"], row["fence"]
            yield f"job {job} started twice with {twice}, or with {highest} over {fence}"


def attempts_do_not_overlap(evidence: Evidence) -> Iterator[str]:
    """An attempt starts after the end of the one before: a settle, or the expiry of its lease."""
    lease = evidence.plan["lease"] * MICROSECONDS
    for row in evidence.jobs:
        past = evidence.attempts(row)
        for index, earlier in enumerate(past):
            later = past[index + 1]["data"] if index + 1 < len(past) else row
            began = (
                later["started_at"] if later["started_seq"] else None
            )  # else it is the earlier's
            what = f"job {row['id']}: fence {earlier['fence']}"
            ended, outcome = earlier["at"], earlier["data"]["outcome"]
            if began is not None and began < ended:
                yield f"{what} had not ended when the next started"
            if outcome in LOST and ended < earlier["data"]["started_at"] + lease:
                yield f"{what} was rescued before its lease expired"
            if outcome not in LOST and _wrote_after(evidence, row["id"], earlier["fence"]):
                yield f"{what} still ran after {outcome}"


def _wrote_after(evidence: Evidence, job: str, fence: int) -> bool:
    """Whether an attempt wrote to the ledger after a later one had started."""
    lines = evidence.runs.get(job, ())
    started = [line["at"] for line in lines if line["fence"] > fence and line["phase"] == "start"]
    written = [line["at"] for line in lines if line["fence"] == fence]
    return bool(started and written) and max(written) > min(started)


def instants_are_by_the_clock_of_the_store(evidence: Evidence) -> Iterator[str]:
    """Every instant is between start and end of the storm, by the clock of the store."""
    first, last = (
        evidence.plan["began"] - MICROSECONDS,
        evidence.now + MICROSECONDS,
    )  # it may be adjusted
    for row in evidence.jobs:
        instants = {name: row[name] for name in _INSTANTS}
        lines = evidence.log.get(row["n"], ())
        instants |= {f"the time of event {line['seq']}": line["at"] for line in lines}
        for name, at in instants.items():
            if at is not None and not first <= at <= last:
                off = (at - (first if at < first else last)) / MICROSECONDS
                job = row["id"]
                yield f"job {job}: {name} is off by {off:.0f} s: not by the clock of the store"


def logs_are_dense(evidence: Evidence) -> Iterator[str]:
    """Events are numbered 1 to n: log rows, and events that other rows imply."""
    for row in evidence.jobs:
        seen = [1, row["queued_seq"], row["started_seq"], row["seq"] if row["ended_at"] else 0]
        for line in evidence.log.get(row["n"], ()):
            seen.append(line["seq"])
            if line["type"] == "attempt":
                seen += [line["data"]["queued_seq"], line["data"]["started_seq"]]
        if sorted(filter(None, seen)) != list(range(1, row["seq"] + 1)):
            yield f"the log of job {row['id']} is {sorted(seen)}; its last event is {row['seq']}"


def attempts_are_within_bounds(evidence: Evidence) -> Iterator[str]:
    for row in evidence.jobs:
        job, past = row["id"], evidence.attempts(row)
        numbers = [line["attempt"] for line in past]
        current = [row["attempt"]] if row["started_seq"] else []
        if (
            numbers + current != list(range(1, row["attempt"] + 1))
            or row["fence"] != row["attempt"]
        ):
            yield f"job {job} is at attempt {row['attempt']}, fence {row['fence']}, after {numbers}"
        crashes, cap = row["crash_count"], row["policy"]["crash_cap"]
        if crashes > cap or (row["state"] == "failed" and crashes != cap):
            yield f"job {job} is {row['state']} after {crashes} crashes; its cap is {cap}"
        raised = sum(_raised(evidence, job, line) for line in past)
        reported = sum(line["data"]["error"] is not None for line in past) - raised
        if crashes - reported not in _LAST_CRASH.get(row["state"], {0}):
            yield f"job {job} counts {crashes} crashes, its log has {reported}"
        if row["retry_count"] != raised:
            what = f"raised {raised}" if raised else "raised none"
            yield f"job {job} counts {row['retry_count']} errors; its task {what}"
        if (
            crashes
            and not evidence.plan["may_lose_attempts"]
            and evidence.requested.get(job) not in PROCESS_KILLERS
        ):
            problem = f"job {job} lost an attempt ({crashes} crashes)"
            yield f"{problem} in a storm that must not cost attempts"


def _raised(evidence: Evidence, job: str, past: Row) -> bool:
    """Whether the attempt ended by an error that its task recorded."""
    message = {line["fence"] for line in evidence.runs.get(job, ()) if line["phase"] == "raise"}
    return past["data"]["outcome"] == "retry" and past["fence"] in message


def effects_are_fenced(evidence: Evidence) -> Iterator[str]:
    """The register accepted each fence once, in order; the last one succeeded."""
    for row in evidence.jobs:
        job, accepted = row["id"], evidence.register.get(row["id"], [])
        if accepted != sorted(set(accepted)):
            yield f"the register accepted {accepted} of job {job}"
        ends = [line for line in evidence.runs.get(job, ()) if line["phase"] == "end"]
        if not {line["fence"] for line in ends if line["applied"]} <= set(accepted):
            problem = "received an accepted write that the register does not have"
            yield f"job {job} {problem}: {accepted}"
        if row["state"] == "succeeded" and accepted[-1:] != [row["fence"]]:
            yield f"job {job} succeeded with fence {row['fence']}, the register has {accepted}"


def steps_are_not_repeated(evidence: Evidence) -> Iterator[str]:
    for row in evidence.jobs:
        for step in evidence.steps.get(row["n"], ()):
            fences = _fences_of(evidence, row, step["step"])
            made = json.loads(step["value"])
            if made not in fences or max(fences) > made:
                what = f"step {step['step']!r} of job {row['id']}"
                yield f"{what} was stored by fence {made} but ran in {fences}"


def _fences_of(evidence: Evidence, row: Row, step: str) -> list[int]:
    return [line["fence"] for line in evidence.runs.get(row["id"], ()) if line.get("step") == step]


def cancel_results_are_true(evidence: Evidence) -> Iterator[str]:
    """`canceled` and `running` accept the cancel; `conflict` means that the job had ended."""
    states = {row["id"]: row["state"] for row in evidence.jobs}
    for job, answer in evidence.cancels.items():
        if answer in {"canceled", "running"} and states.get(job) != "canceled":
            yield f"the cancel of job {job} returned {answer}; the job ended {states.get(job)}"
        if answer == "conflict" and states.get(job) == "canceled":
            yield f"the cancel of job {job} was refused, but the job was canceled"
    for row in evidence.jobs:
        if row["state"] == "succeeded" and row["cancel_at"] is not None:
            yield f"job {row['id']} succeeded over an accepted cancel"


def settle_results_are_true(evidence: Evidence) -> Iterator[str]:
    """An applied settle is in the tables; a refused one had lost its lease.

    A settle that meets a lock of PostgreSQL returns `busy`, has no effect, and is repeated. So the
    attempt ends with the same outcome unless it loses its lease. That result may be missing in the
    ledger, because the worker may be killed before it records it.
    """
    ends: dict[tuple[str, int], str] = {}
    for row in evidence.jobs:
        ends[row["id"], row["fence"]] = row["trigger"]
        for past in evidence.attempts(row):
            ends[row["id"], past["fence"]] = past["data"]["outcome"]
    for settle in evidence.settles:
        end = ends.get((settle["job"], settle["fence"]))
        what = f"the {settle['trigger']} of job {settle['job']}, fence {settle['fence']},"
        if settle["status"] == "applied" and end != settle["trigger"]:
            yield f"{what} was applied; the attempt ended by {end}"
        elif settle["status"] == "stale" and end not in LOST:
            yield f"{what} was refused as stale; the attempt ended by {end}"
        elif settle["status"] == "busy" and evidence.plan["store"] == "postgresql":
            if end not in {settle["trigger"], *LOST}:
                yield f"{what} returned busy; the attempt ended by {end}"
        elif settle["status"] not in {"applied", "stale"}:
            yield f"{what} returned {settle['status']}"


def no_workspace_is_left(evidence: Evidence) -> Iterator[str]:
    for job in sorted(evidence.leftovers):
        yield f"job {job} has ended, but its workspace still exists"


CHECKS = (
    acknowledged_jobs_exist_once,
    every_job_ended_as_expected,
    ends_were_counted_once,
    results_are_of_the_last_attempt,
    fences_rise,
    attempts_do_not_overlap,
    instants_are_by_the_clock_of_the_store,
    logs_are_dense,
    attempts_are_within_bounds,
    effects_are_fenced,
    steps_are_not_repeated,
    cancel_results_are_true,
    settle_results_are_true,
    no_workspace_is_left,
)
