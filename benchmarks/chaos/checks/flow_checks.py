"""Checks of dependencies between jobs. Imports no Windlass code."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.ledger import Line
from benchmarks.chaos.stores import Row


def no_job_waits_for_a_parent(evidence: Evidence) -> Iterator[str]:
    for row in evidence.jobs:
        left = [edge["parent_id"] for edge in evidence.edges.get(row["n"], ()) if edge["open"]]
        if left or row.get("waiting_for"):
            yield f"job {row['id']} has ended but waits for {row['waiting_for']}: {left[:3]}"


def no_job_continued_before_its_parents(evidence: Evidence) -> Iterator[str]:
    """Compares the instants of the store, and the ledger of the tasks.

    A job that fans out starts before its parts and continues with its last attempt.
    """
    jobs = {row["id"]: row for row in evidence.jobs}
    done = {id_: _success(evidence, row) for id_, row in jobs.items()}
    for row in evidence.jobs:
        started = row["started_at" if row["id"] in evidence.fans else "first_started_at"]
        starts = _starts(evidence, row)
        for edge in evidence.edges.get(row["n"], ()):
            parent = jobs.get(edge["parent_id"])
            what = f"job {row['id']} did not wait for {edge['parent_id']}"
            if parent is None:
                yield f"{what}, which does not exist"
                continue
            if started is None or parent["ended_at"] is None or started < parent["ended_at"]:
                yield f"{what}: it started at {started}, the parent ended at {parent['ended_at']}"
            ended = done[parent["id"]]
            if ended is None or (starts and min(starts) < ended["at"]):
                yield f"{what}: by the ledger"


def _starts(evidence: Evidence, row: Row) -> list[int]:
    """Return the starts of all attempts; for a fan-out, only of the last one."""
    fence = row["fence"] if row["id"] in evidence.fans else 0
    lines = evidence.runs.get(row["id"], ())
    return [line["at"] for line in lines if line["phase"] == "start" and line["fence"] >= fence]


def _success(evidence: Evidence, row: Row) -> Line | None:
    """Return the ledger line at the end of the successful attempt."""
    lines = evidence.runs.get(row["id"], ())
    own = (line for line in lines if line["phase"] == "end" and line["fence"] == row["fence"])
    return next(own, None)


def a_fan_in_has_every_result_in_order(evidence: Evidence) -> Iterator[str]:
    """Each completed attempt had the stored results, in the right order."""
    jobs = {row["id"]: row for row in evidence.jobs}
    for row in evidence.jobs:
        parents = [jobs.get(edge["parent_id"]) for edge in evidence.edges.get(row["n"], ())]
        stored = [[parent["id"], parent["fence"]] for parent in parents if parent is not None]
        for line in evidence.runs.get(row["id"], ()):
            if line["phase"] == "end" and line.get("got", []) != stored:
                number = len(line.get("got", []))
                yield f"job {row['id']} continued with {number} results that are not its parents'"


def a_fan_out_made_each_part_once(evidence: Evidence) -> Iterator[str]:
    jobs = {row["id"]: row for row in evidence.jobs}
    for fan, parts in evidence.fans.items():
        made = (
            [edge["parent_id"] for edge in evidence.edges.get(jobs[fan]["n"], ())]
            if fan in jobs
            else []
        )
        items = [_item(evidence, part) for part in made]
        if items != list(range(parts)) or len({*made}) != parts:
            counts = f"{len({*made})} parts, of {len({*items})} items"
            yield f"job {fan} made {counts}; {parts} were requested"


def _item(evidence: Evidence, part: str) -> int | None:
    """Return the item of a part from its ledger lines, if all attempts agree."""
    items = {line["item"] for line in evidence.runs.get(part, ()) if "item" in line}
    return next(iter(items)) if len(items) == 1 else None


CHECKS = (
    no_job_waits_for_a_parent,
    no_job_continued_before_its_parents,
    a_fan_in_has_every_result_in_order,
    a_fan_out_made_each_part_once,
)
