"""Report of the storms, as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.checks.limit_checks import Gates, seen
from benchmarks.chaos.checks.rescue_times import SLACK, RescueTimes, rescue_times
from benchmarks.chaos.streams import transcript_checks
from benchmarks.chaos.streams.transcript_checks import Streams

_DROPPED = "lease expired; result discarded"
_RECYCLED = "reached its limit and is replaced"
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StormResult:
    """Result of one storm. `violations` are the messages of the checker."""

    storm: str
    seed: int
    seconds: float
    jobs: int
    attempts: int
    ended: dict[str, int]
    faults: dict[str, int]
    crashes: int
    rescues: RescueTimes | None  # of jobs whose worker was killed
    lease: float
    resumed_steps: int
    stale_settles: int  # attempts that ran to their end after their job had been taken from them
    refused_effects: int  # by the register: a later attempt had written there
    taken_settles: int
    refused_settles: int  # by the store: the lease was lost
    busy_settles: int  # another transaction held the job or a dependent one; repeated
    late_workers: int  # that were frozen, woke up, and were refused
    dropped_settles: int  # by the worker itself, from its log: it had noticed the lost lease
    recycled: int  # workers that had grown too large and were replaced
    repeated_calls: int  # of producers: refused, or not answered
    cancels: dict[str, int]
    gates: Gates | None  # where something was limited
    streams: Streams | None  # where something was read
    violations: list[str]

    @property
    def bound(self) -> float:
        """The rate of broken jobs that no violation in so many still allows, at 95 %."""
        return 3 / self.jobs

    def facts(self) -> dict[str, object]:
        """For programs."""
        return {**asdict(self), "bound": None if self.violations else self.bound}


def storm_result(evidence: Evidence, violations: list[str], seconds: float) -> StormResult:
    ends = [line for line in evidence.task_lines if line["phase"] == "end"]
    kept = {(row["id"], step["step"]) for row in evidence.jobs for step in evidence.steps.get(row["n"], ())
            if step["attempt"] < row["attempt"]}  # fmt: skip
    taken = {(row["id"], past["fence"]): past["at"] for row in evidence.jobs for past in evidence.attempts(row)
             if past["facts"]["outcome"] == "crash"}  # fmt: skip
    logs = [
        path.read_text(errors="replace")
        for path in (evidence.directory / "log").glob("worker-*.log")
    ]
    return StormResult(
        storm=evidence.plan["storm"],
        seed=evidence.plan["seed"],
        seconds=round(seconds, 1),
        jobs=len(evidence.jobs),
        attempts=sum(row["attempt"] for row in evidence.jobs),
        ended=dict(Counter(row["state"] for row in evidence.jobs)),
        faults=dict(Counter(line["fault"] for line in evidence.faults)),
        crashes=sum(row["crash_count"] for row in evidence.jobs),
        rescues=rescue_times(evidence),
        lease=evidence.plan["lease"],
        resumed_steps=len(kept),
        stale_settles=sum(
            line["at"] > taken.get((line["job"], line["fence"]), _NEVER) for line in ends
        ),
        refused_effects=sum(not line["applied"] for line in ends),
        taken_settles=sum(message["status"] == "applied" for message in evidence.settles),
        refused_settles=sum(message["status"] == "stale" for message in evidence.settles),
        busy_settles=sum(message["status"] == "busy" for message in evidence.settles),
        late_workers=_late_workers(evidence),
        dropped_settles=sum(text.count(_DROPPED) for text in logs),
        recycled=sum(text.count(_RECYCLED) for text in logs),
        repeated_calls=sum("refused" in line for line in evidence.producer_lines),
        cancels=dict(Counter(answer or "unanswered" for answer in evidence.cancels.values())),
        gates=seen(evidence),
        streams=transcript_checks.seen(evidence.directory),
        violations=violations,
    )


def _late_workers(evidence: Evidence) -> int:
    """How often a worker was frozen and then refused, before it was frozen again."""
    refused = [message for message in evidence.settles if message["status"] == "stale"]
    found = 0
    for number, line in enumerate(evidence.faults):
        if line["fault"] == "SIGCONT":
            later = (
                other for other in evidence.faults[number + 1 :] if other.get("pid") == line["pid"]
            )
            until = next((other["at"] for other in later), _NEVER)
            found += any(
                message["pid"] == line["pid"] and line["at"] <= message["at"] < until
                for message in refused
            )
    return found


def markdown(results: Sequence[StormResult]) -> str:
    """Return a row per storm, the violations, and the statistical bound."""
    shown = [_figures(result) for result in results]
    lines = [[*shown[0]], ["---"] * len(shown[0]), *([*figures.values()] for figures in shown)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    message = [
        f"- {result.storm}: {problem}" for result in results for problem in result.violations
    ]
    jobs = sum(result.jobs for result in results)
    total = f"{jobs:,} jobs, {len(message)} violations"
    if not message:
        total += f": such faults break at most {3 / jobs:.1e} of all jobs (3/n, 95 %)"
    return "\n\n".join(part for part in (table, "\n".join(message), total) if part)


def _figures(result: StormResult) -> dict[str, str]:
    return {
        "storm": f"`{result.storm}`",
        "jobs": f"{result.jobs:,}: {_counts(result.ended)}",
        "faults": _counts(result.faults),
        "attempts": f"{result.attempts:,}",
        "crashes": f"{result.crashes:,}",
        "observed": "; ".join(_seen(result)),
        "lease": f"{result.lease:g} s",
        "took": f"{result.seconds:,.0f} s",
        "violations": str(len(result.violations)),
        "bound (3/n)": "broken" if result.violations else f"{result.bound:.1e}",
    }


def _seen(result: StormResult) -> Iterator[str]:
    """What else happened, as far as it did."""
    if result.rescues is not None:
        yield _seconds(result.rescues)
    counted = {
        "completed steps not repeated": result.resumed_steps,
        "stale attempts ran to their end": result.stale_settles,
        "of their effects refused by the register": result.refused_effects,
        "late settles refused by the store": result.refused_settles,
        "settles met a lock and were repeated": result.busy_settles,
        "times a frozen worker woke up and was refused": result.late_workers,
        "late results dropped by the worker itself": result.dropped_settles,
        "workers replaced for their size": result.recycled,
        "refused calls of producers, repeated": result.repeated_calls,
    }
    yield from (f"{count:,} {what}" for what, count in counted.items() if count)
    if result.gates is not None:
        yield _waits(result.gates)
    if result.streams is not None:
        yield _read(result.streams)
    if result.cancels:
        yield f"cancels answered: {_counts(result.cancels)}"


def _seconds(found: RescueTimes) -> str:
    message = (
        f"claimable {found.median:g} s after the kill (median), {found.most:g} s (99 %), "
        f"{found.longest:g} s (longest), {found.late} later than a lease and {SLACK:g} s"
    )
    if found.unwatched:
        longest = f"{found.unwatched_longest:g} s (longest)"
        message += f"; {found.unwatched} across another kill of all processes: {longest}"
    return message


def _waits(found: Gates) -> str:
    most = ", ".join(f"{number} of {name}" for name, number in sorted(found.most.items()))
    return (
        f"at most {most}; {found.waited:,} waits at gates, {found.longest:g} s (longest) of them "
        f"with free capacity, {found.late} for more than a lease and {SLACK:g} s"
    )


def _read(found: Streams) -> str:
    return (
        f"{found.readers:,} readers on {found.connections:,} connections, {found.most:,} at once, "
        f"{found.cut:,} of them cut off; {found.events:,} events received"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"
