"""What came of the storms, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos.evidence import Evidence

_REFUSED = ("was lost to another worker", "is another worker's now", "settle was answered stale")

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One storm. `violations` is what the checker said; empty is sound."""

    storm: str
    seed: int
    seconds: float
    jobs: int
    attempts: int
    ended: dict[str, int]
    faults: dict[str, int]
    crashes: int
    rescued_within: float | None  # seconds from a worker's death to the last rescue of its jobs
    resumed_steps: int
    ghosts: int  # attempts that ran to their end after their job had been taken from them
    refused_effects: int  # by the register: a later attempt had written there
    refused_settles: int  # by the store, as the workers' logs tell
    cancels: dict[str, int]
    violations: list[str]

    @property
    def bound(self) -> float:
        """The rate of broken jobs that no violation in so many still allows, at 95 %."""
        return 3 / self.jobs


def verdict(it: Evidence, violations: list[str], seconds: float) -> Verdict:
    ends = [line for line in it.ran if line["phase"] == "end"]
    kept = {(row["id"], step["step"]) for row in it.jobs for step in it.steps.get(row["n"], ())
            if step["attempt"] < row["attempt"]}  # fmt: skip
    taken = {(row["id"], past["fence"]): past["at"] for row in it.jobs for past in it.attempts(row)
             if past["facts"]["outcome"] == "crash"}  # fmt: skip
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
        rescued_within=_rescued_within(it),
        resumed_steps=len(kept),
        ghosts=sum(line["at"] > taken.get((line["job"], line["fence"]), _NEVER) for line in ends),
        refused_effects=sum(not line["applied"] for line in ends),
        refused_settles=sum(text.count(words) for text in logs for words in _REFUSED),
        cancels=dict(Counter(answer or "unanswered" for answer in it.cancels.values())),
        violations=violations,
    )


def _rescued_within(it: Evidence) -> float | None:
    """By the pid in the worker's name; numbers that were used twice are left out."""
    killed = {line["pid"]: line["at"] for line in it.faults if line["fault"] == "SIGKILL"}
    waits = [
        past["at"] - killed[pid]
        for row in it.jobs
        for past in it.attempts(row)
        if past["facts"]["outcome"] == "crash"
        and (pid := int(past["facts"]["worker"].split("-")[-2])) in killed
        and past["facts"]["started_at"] <= killed[pid] <= past["at"]
    ]
    return round(max(waits) / 1e6, 2) if waits else None


def markdown(verdicts: Sequence[Verdict]) -> str:
    """A column for each storm, what is broken, and what it all allows to say."""
    shown = [_figures(it) for it in verdicts]
    lines = [["storm", *(it.storm for it in verdicts)], ["---"] * (len(verdicts) + 1)]
    lines += [[name, *(figures[name] for figures in shown)] for name in shown[0]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    said = [f"- {it.storm}: {problem}" for it in verdicts for problem in it.violations]
    jobs = sum(it.jobs for it in verdicts)
    total = f"{jobs:,} jobs, {len(said)} violations"
    if not said:
        total += f": such faults break at most {3 / jobs:.1e} of all jobs (3/n, 95 %)"
    return "\n\n".join(part for part in (table, "\n".join(said), total) if part)


def _figures(it: Verdict) -> dict[str, str]:
    within = it.rescued_within
    return {
        "jobs": f"{it.jobs:,}",
        "ended": _counts(it.ended),
        "faults": _counts(it.faults),
        "attempts": f"{it.attempts:,}",
        "attempts lost with their process": f"{it.crashes:,}",
        "rescued after a kill within": "none" if within is None else f"{within:g} s",
        "steps not done again": f"{it.resumed_steps:,}",
        "ghosts that ran to their end": f"{it.ghosts:,}",
        "of those, effects refused by the register": f"{it.refused_effects:,}",
        "settles refused or dropped": f"{it.refused_settles:,}",
        "cancels answered": _counts(it.cancels),
        "seconds": f"{it.seconds:g}",
        "violations": str(len(it.violations)),
        "bound (3/n)": "broken" if it.violations else f"{it.bound:.1e}",
    }


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "none"
