"""Checks of dependencies between jobs. Imports no Windlass code."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.chaos.bases import Row
from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.ledger import Line


def nothing_is_waited_for_any_more(it: Evidence) -> Iterator[str]:
    for row in it.jobs:
        left = [edge["parent_id"] for edge in it.edges.get(row["n"], ()) if edge["open"]]
        if left or row.get("waiting_for"):
            yield f"job {row['id']} is over and waits for {row['waiting_for']}: {left[:3]}"


def none_went_on_before_what_it_waited_for(it: Evidence) -> Iterator[str]:
    """By the instants of the store, and by the ledger of the tasks.

    A job that fans out starts before its parts and continues with its last attempt.
    """
    jobs = {row["id"]: row for row in it.jobs}
    done = {id_: _success(it, row) for id_, row in jobs.items()}
    for row in it.jobs:
        began = row["started_at" if row["id"] in it.fans else "first_started_at"]
        starts = _starts(it, row)
        for edge in it.edges.get(row["n"], ()):
            parent = jobs.get(edge["parent_id"])
            what = f"job {row['id']} did not wait for {edge['parent_id']}"
            if parent is None:
                yield f"{what}, which is not there"
                continue
            if began is None or parent["ended_at"] is None or began < parent["ended_at"]:
                yield f"{what}: it began at {began}, that one ended at {parent['ended_at']}"
            ended = done[parent["id"]]
            if ended is None or (starts and min(starts) < ended["at"]):
                yield f"{what}: so says the ledger"


def _starts(it: Evidence, row: Row) -> list[int]:
    """When it began; of one that fans out, when the attempt began that was its last."""
    fence = row["fence"] if row["id"] in it.fans else 0
    lines = it.runs.get(row["id"], ())
    return [line["at"] for line in lines if line["phase"] == "start" and line["fence"] >= fence]


def _success(it: Evidence, row: Row) -> Line | None:
    """What the attempt wrote at its end by which the job succeeded."""
    lines = it.runs.get(row["id"], ())
    own = (line for line in lines if line["phase"] == "end" and line["fence"] == row["fence"])
    return next(own, None)


def a_gathering_job_has_every_result_in_order(it: Evidence) -> Iterator[str]:
    """Each completed attempt had the stored results, in the right order."""
    jobs = {row["id"]: row for row in it.jobs}
    for row in it.jobs:
        parents = [jobs.get(edge["parent_id"]) for edge in it.edges.get(row["n"], ())]
        there = [[parent["id"], parent["fence"]] for parent in parents if parent is not None]
        for line in it.runs.get(row["id"], ()):
            if line["phase"] == "end" and line.get("got", []) != there:
                number = len(line.get("got", []))
                yield f"job {row['id']} went on with {number} results that are not its parents'"


def a_fan_out_made_each_part_once(it: Evidence) -> Iterator[str]:
    jobs = {row["id"]: row for row in it.jobs}
    for fan, parts in it.fans.items():
        made = (
            [edge["parent_id"] for edge in it.edges.get(jobs[fan]["n"], ())] if fan in jobs else []
        )
        items = [_item(it, part) for part in made]
        if items != list(range(parts)) or len({*made}) != parts:
            yield f"job {fan} made {len({*made})} parts, of {len({*items})} items; {parts} were due"


def _item(it: Evidence, part: str) -> int | None:
    """What the part was about, as it wrote itself; each attempt wrote the same."""
    items = {line["item"] for line in it.runs.get(part, ()) if "item" in line}
    return next(iter(items)) if len(items) == 1 else None


CHECKS = (
    nothing_is_waited_for_any_more,
    none_went_on_before_what_it_waited_for,
    a_gathering_job_has_every_result_in_order,
    a_fan_out_made_each_part_once,
)
