"""Report of the storms, as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.checks.limit_checks import ObservedLimits, observed_limits
from benchmarks.chaos.checks.rescue_times import SLACK, RescueTimes, rescue_times
from benchmarks.chaos.streams import transcript_checks
from benchmarks.chaos.streams.transcript_checks import ObservedStreams

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
    stale_attempts: int  # attempts that completed after their rescue
    refused_effects: int  # by the register, after a write with a higher fence
    applied_settles: int
    refused_settles: int  # by the store, because the lease was lost
    busy_settles: int  # met a lock of another transaction; repeated
    refused_frozen_workers: int  # frozen workers with a refused settle after they continued
    dropped_settles: int  # dropped by the worker, which had noticed the lost lease
    recycled: int  # workers replaced for their memory use
    repeated_calls: int  # by producers, after an error or a lost response
    cancels: dict[str, int]
    gates: ObservedLimits | None  # None without limits
    streams: ObservedStreams | None  # None without stream readers
    violations: list[str]

    @property
    def bound(self) -> float:
        """The upper bound of the rate of broken jobs, at 95 %, if there is no violation."""
        return 3 / self.jobs

    def fields(self) -> dict[str, object]:
        """Return the values for JSON."""
        return {**asdict(self), "bound": None if self.violations else self.bound}


def storm_result(evidence: Evidence, violations: list[str], seconds: float) -> StormResult:
    ends = [line for line in evidence.task_lines if line["phase"] == "end"]
    resumed_steps = {
        (row["id"], step["step"])
        for row in evidence.jobs
        for step in evidence.steps.get(row["n"], ())
        if step["attempt"] < row["attempt"]
    }
    rescued_at = {
        (row["id"], past["fence"]): past["at"]
        for row in evidence.jobs
        for past in evidence.attempts(row)
        if past["data"]["outcome"] == "crash"
    }
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
        resumed_steps=len(resumed_steps),
        stale_attempts=sum(
            line["at"] > rescued_at.get((line["job"], line["fence"]), _NEVER) for line in ends
        ),
        refused_effects=sum(not line["applied"] for line in ends),
        applied_settles=sum(message["status"] == "applied" for message in evidence.settles),
        refused_settles=sum(message["status"] == "stale" for message in evidence.settles),
        busy_settles=sum(message["status"] == "busy" for message in evidence.settles),
        refused_frozen_workers=_late_workers(evidence),
        dropped_settles=sum(text.count(_DROPPED) for text in logs),
        recycled=sum(text.count(_RECYCLED) for text in logs),
        repeated_calls=sum("refused" in line for line in evidence.producer_lines),
        cancels=dict(Counter(answer or "unanswered" for answer in evidence.cancels.values())),
        gates=observed_limits(evidence),
        streams=transcript_checks.observed_streams(evidence.directory),
        violations=violations,
    )


def _late_workers(evidence: Evidence) -> int:
    """Return how often a worker was frozen and then refused, before the next freeze."""
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
    rows = [_figures(result) for result in results]
    lines = [[*rows[0]], ["---"] * len(rows[0]), *([*figures.values()] for figures in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    messages = [
        f"- {result.storm}: {problem}" for result in results for problem in result.violations
    ]
    jobs = sum(result.jobs for result in results)
    total = f"{jobs:,} jobs, {len(messages)} violations"
    if not messages:
        total += f": such faults break at most {3 / jobs:.1e} of all jobs (3/n, 95 %)"
    return "\n\n".join(part for part in (table, "\n".join(messages), total) if part)


def _figures(result: StormResult) -> dict[str, str]:
    return {
        "storm": f"`{result.storm}`",
        "jobs": f"{result.jobs:,}: {_counts(result.ended)}",
        "faults": _counts(result.faults),
        "attempts": f"{result.attempts:,}",
        "crashes": f"{result.crashes:,}",
        "observed": "; ".join(_observations(result)),
        "lease": f"{result.lease:g} s",
        "took": f"{result.seconds:,.0f} s",
        "violations": str(len(result.violations)),
        "bound (3/n)": "broken" if result.violations else f"{result.bound:.1e}",
    }


def _observations(result: StormResult) -> Iterator[str]:
    """Yield the observed effects that occurred at least once."""
    if result.rescues is not None:
        yield _rescue_summary(result.rescues)
    counts = {
        "completed steps not repeated": result.resumed_steps,
        "stale attempts ran to their end": result.stale_attempts,
        "of their effects refused by the register": result.refused_effects,
        "late settles refused by the store": result.refused_settles,
        "settles met a lock and were repeated": result.busy_settles,
        "times a frozen worker continued and was refused": result.refused_frozen_workers,
        "late results dropped by the worker itself": result.dropped_settles,
        "workers replaced for their size": result.recycled,
        "refused calls of producers, repeated": result.repeated_calls,
    }
    yield from (f"{count:,} {what}" for what, count in counts.items() if count)
    if result.gates is not None:
        yield _gate_summary(result.gates)
    if result.streams is not None:
        yield _stream_summary(result.streams)
    if result.cancels:
        yield f"cancels answered: {_counts(result.cancels)}"


def _rescue_summary(summary: RescueTimes) -> str:
    message = (
        f"claimable {summary.median:g} s after the kill (median), {summary.most:g} s (99 %), "
        f"{summary.longest:g} s (longest), {summary.late} later than a lease and {SLACK:g} s"
    )
    if summary.unswept:
        longest = f"{summary.unswept_longest:g} s (longest)"
        message += f"; {summary.unswept} across another kill of all processes: {longest}"
    return message


def _gate_summary(summary: ObservedLimits) -> str:
    most = ", ".join(f"{number} of {name}" for name, number in sorted(summary.most.items()))
    return (
        f"at most {most}; {summary.waited:,} waits at gates, "
        f"{summary.longest:g} s (longest) of them with free capacity, "
        f"{summary.late} for more than a lease and {SLACK:g} s"
    )


def _stream_summary(summary: ObservedStreams) -> str:
    return (
        f"{summary.readers:,} readers on {summary.connections:,} connections, "
        f"{summary.most:,} at once, "
        f"{summary.cut:,} of them cut off; {summary.events:,} events received"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"
