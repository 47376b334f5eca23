"""Report of the storms, as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.checks.limit_checks import Gates, seen
from benchmarks.chaos.checks.rescue_times import SLACK, Waits, waits
from benchmarks.chaos.streams import transcripts
from benchmarks.chaos.streams.transcripts import Streams

_DROPPED = "lease expired; result discarded"
_RECYCLED = "reached its limit and is replaced"
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of one storm. `violations` are the messages of the checker."""

    storm: str
    seed: int
    seconds: float
    jobs: int
    attempts: int
    ended: dict[str, int]
    faults: dict[str, int]
    crashes: int
    rescues: Waits | None  # of jobs whose worker was killed
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

    def fields(self) -> dict[str, object]:
        """For programs."""
        return {**asdict(self), "bound": None if self.violations else self.bound}


def verdict(it: Evidence, violations: list[str], seconds: float) -> Verdict:
    ends = [line for line in it.ran if line["phase"] == "end"]
    kept = {(row["id"], step["step"]) for row in it.jobs for step in it.steps.get(row["n"], ())
            if step["attempt"] < row["attempt"]}  # fmt: skip
    taken = {(row["id"], past["fence"]): past["at"] for row in it.jobs for past in it.attempts(row)
             if past["data"]["outcome"] == "crash"}  # fmt: skip
    logs = [path.read_text(errors="replace") for path in (it.place / "log").glob("worker-*.log")]
    return Verdict(
        storm=it.plan["storm"],
        seed=it.plan["seed"],
        seconds=round(seconds, 1),
        jobs=len(it.jobs),
        attempts=sum(row["attempt"] for row in it.jobs),
        ended=dict(Counter(row["state"] for row in it.jobs)),
        faults=dict(Counter(line["fault"] for line in it.faults)),
        crashes=sum(row["crash_count"] for row in it.jobs),
        rescues=waits(it),
        lease=it.plan["lease"],
        resumed_steps=len(kept),
        stale_settles=sum(
            line["at"] > taken.get((line["job"], line["fence"]), _NEVER) for line in ends
        ),
        refused_effects=sum(not line["applied"] for line in ends),
        taken_settles=sum(message["status"] == "applied" for message in it.settles),
        refused_settles=sum(message["status"] == "stale" for message in it.settles),
        busy_settles=sum(message["status"] == "busy" for message in it.settles),
        late_workers=_late_workers(it),
        dropped_settles=sum(text.count(_DROPPED) for text in logs),
        recycled=sum(text.count(_RECYCLED) for text in logs),
        repeated_calls=sum("refused" in line for line in it.produced),
        cancels=dict(Counter(answer or "unanswered" for answer in it.cancels.values())),
        gates=seen(it),
        streams=transcripts.seen(it.place),
        violations=violations,
    )


def _late_workers(it: Evidence) -> int:
    """How often a worker was frozen and then refused, before it was frozen again."""
    refused = [message for message in it.settles if message["status"] == "stale"]
    found = 0
    for number, line in enumerate(it.faults):
        if line["fault"] == "SIGCONT":
            later = (other for other in it.faults[number + 1 :] if other.get("pid") == line["pid"])
            until = next((other["at"] for other in later), _NEVER)
            found += any(
                message["pid"] == line["pid"] and line["at"] <= message["at"] < until
                for message in refused
            )
    return found


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return a row per storm, the violations, and the statistical bound."""
    shown = [_figures(it) for it in verdicts]
    lines = [[*shown[0]], ["---"] * len(shown[0]), *([*figures.values()] for figures in shown)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    message = [f"- {it.storm}: {problem}" for it in verdicts for problem in it.violations]
    jobs = sum(it.jobs for it in verdicts)
    total = f"{jobs:,} jobs, {len(message)} violations"
    if not message:
        total += f": such faults break at most {3 / jobs:.1e} of all jobs (3/n, 95 %)"
    return "\n\n".join(part for part in (table, "\n".join(message), total) if part)


def _figures(it: Verdict) -> dict[str, str]:
    return {
        "storm": f"`{it.storm}`",
        "jobs": f"{it.jobs:,}: {_counts(it.ended)}",
        "faults": _counts(it.faults),
        "attempts": f"{it.attempts:,}",
        "lost with their process": f"{it.crashes:,}",
        "what was seen": "; ".join(_seen(it)),
        "lease": f"{it.lease:g} s",
        "took": f"{it.seconds:,.0f} s",
        "violations": str(len(it.violations)),
        "bound (3/n)": "broken" if it.violations else f"{it.bound:.1e}",
    }


def _seen(it: Verdict) -> Iterator[str]:
    """What else happened, as far as it did."""
    if it.rescues is not None:
        yield _seconds(it.rescues)
    counted = {
        "steps not done again": it.resumed_steps,
        "ghosts ran to their end": it.stale_settles,
        "of their effects refused by the register": it.refused_effects,
        "late settles refused by the store": it.refused_settles,
        "settles met a lock and were repeated": it.busy_settles,
        "times a frozen worker woke up and was refused": it.late_workers,
        "late results dropped by the worker itself": it.dropped_settles,
        "workers replaced for their size": it.recycled,
        "calls of producers refused, and repeated": it.repeated_calls,
    }
    yield from (f"{count:,} {what}" for what, count in counted.items() if count)
    if it.gates is not None:
        yield _waits(it.gates)
    if it.streams is not None:
        yield _read(it.streams)
    if it.cancels:
        yield f"cancels answered: {_counts(it.cancels)}"


def _seconds(found: Waits) -> str:
    message = (
        f"claimable {found.median:g} s after the kill (median), {found.most:g} s (99 %), "
        f"{found.longest:g} s (longest), {found.late} later than a lease and {SLACK:g} s"
    )
    if found.unwatched:
        longest = f"{found.unwatched_longest:g} s (longest)"
        message += f"; {found.unwatched} across a further kill of everything: {longest}"
    return message


def _waits(found: Gates) -> str:
    most = ", ".join(f"{number} of {name}" for name, number in sorted(found.most.items()))
    return (
        f"at most {most}; {found.waited:,} waits at gates, {found.longest:g} s (longest) of them "
        f"with room, {found.late} for more than a lease and {SLACK:g} s"
    )


def _read(found: Streams) -> str:
    return (
        f"{found.readers:,} readers on {found.connections:,} connections, {found.most:,} at once, "
        f"{found.cut:,} of them cut off; {found.events:,} events came"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"
