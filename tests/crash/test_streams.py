"""Event streams in a storm: two web servers with faults; no reader misses an event.

The long form, with 5,000 readers, is part of `make chaos`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.storm import Plan
from benchmarks.chaos.storm_catalog import STORMS
from benchmarks.chaos.storm_run import run
from benchmarks.chaos.streams import stream_faults
from benchmarks.chaos.streams.transcript_checks import CHECKS
from tests.crash.test_postgres_storms import server_for

READERS = 500
JOB = "01a1e548-a667-7447-b3c5-5dc8c7faca02"


@pytest.mark.slow
def test_every_reader_gets_the_whole_log_once_under_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
    print(f"seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
    plan = Plan(
        jobs=100, connections=READERS, seconds=150, seed=seed, workers=2, slots=50,
        store="postgresql", server=server_for("streams"),
    )  # fmt: skip
    storm_result = run(STORMS["streams"], plan, tmp_path / "streams")
    print(storm_result)  # noqa: T201
    assert storm_result.violations == []
    assert storm_result.streams is not None
    assert storm_result.streams.readers == READERS
    assert storm_result.streams.cut > READERS / 10  # streams were open when the faults hit
    for fault in (stream_faults.KILLED, stream_faults.STOPPED, stream_faults.DISCONNECTED):
        assert storm_result.faults[fault] > 0


# -- changed transcripts


ROW = {
    "id": JOB, "n": 1, "state": "succeeded", "seq": 5, "created_at": 1_000_000,
    "queued_seq": 2, "queued_at": 1_000_000, "started_seq": 3, "started_at": 2_000_000,
    "ended_at": 4_000_000,
}  # fmt: skip
LOG_LINE = {
    "n": 1,
    "seq": 4,
    "at": 3_000_000,
    "type": "log",
    "data": {},
    "body": b'{"message":"hi"}',
}
LOG = [
    ("1000-1", "job-status", '{"status":"created"}'),
    ("1000-2", "job-status", '{"status":"queued"}'),
    ("2000-3", "job-status", '{"status":"running"}'),
    ("3000-4", "log", '{"message":"hi"}'),
    ("4000-5", "job-completed", '{"status":"succeeded"}'),
]


def body(*events: tuple[str, str, str]) -> str:
    return "".join(f"id: {id_}\nevent: {kind}\ndata: {data}\n\n" for id_, kind, data in events)


def connection(reader: int = 0, **facts: Any) -> dict[str, Any]:
    return {"reader": reader, "job": JOB, "server": 0, "after": None, "status": 200,
            "whole": True, "body": ""} | facts  # fmt: skip


def correct_transcripts() -> list[dict[str, Any]]:
    """Two readers: one was disconnected in the middle of a message, and reconnected."""
    nothing = connection(after="4000-5", status=204)
    half = "retry: 1000\n\n" + body(*LOG[:2]) + "id: 2000-3\nevent: job-st"
    return [
        connection(body="retry: 1000\n\n" + body(*LOG)),
        nothing,
        connection(1, whole=False, body=half),
        connection(1, whole=False, status=None, after="1000-2"),
        connection(1, after="1000-2", body=": keepalive: 2026\n\n" + body(*LOG[2:])),
        nothing | {"reader": 1},
    ]


def problems(directory: Path, lines: list[dict[str, Any]]) -> str:
    (directory / "streams").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "streams" / "transcript.jsonl").write_text(text)
    evidence = Evidence(
        directory=directory, plan={"connections": 2}, producer_lines=[], task_lines=[],
        settle_lines=[], faults=[],
        register={}, jobs=[ROW], log={1: [LOG_LINE]}, steps={}, outcomes={}, leftovers=set(), now=0,
    )  # fmt: skip
    return "\n".join(problem for check in CHECKS for problem in check(evidence))


def test_correct_transcripts_have_no_violations(tmp_path: Path) -> None:
    assert problems(tmp_path, correct_transcripts()) == ""


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (4, {"body": body(*LOG[1:])}, "1000-2 was received twice"),
        (4, {"body": body(*LOG[3:])}, "the log has ('2000-3', 'job-status')"),
        (4, {"body": body(LOG[3], LOG[2], LOG[4])}, "the log has ('2000-3', 'job-status')"),
        (4, {"body": body(LOG[2], LOG[3])}, "received 4 events; the log has 5"),
        (4, {"body": body(LOG[2], ("3001-4", *LOG[3][1:]), LOG[4])}, "('3000-4', 'log')"),
        (
            4,
            {"body": body(LOG[2], ("3000-4", "log", '{"message":"ho"}'), LOG[4])},
            "has different data",
        ),
        (4, {"body": body(*LOG[2:]) + "evil\n\n"}, "received the line b'evil'"),
        (4, {"body": body(*LOG[2:])[:-1]}, "ended in the middle of a message"),
        (4, {"after": "1000-1"}, "requested events after 1000-1, but has 1000-2"),
        (5, {"status": 200, "body": "retry: 1000\n\n"}, "did not receive 204 at the end"),
        (5, {"status": 404}, "received status 404"),
        (3, {"status": 204}, "received 204 after 1000-2"),
        (5, {"body": "x"}, "received 204 after 4000-5"),
        (2, {"reader": 0}, "requested events after None, but has 4000-5"),
    ],
)
def test_a_wrong_transcript_is_detected(
    tmp_path: Path, index: int, change: dict[str, Any], message: str
) -> None:
    lines = correct_transcripts()
    lines[index] |= change
    assert message in problems(tmp_path, lines)


def test_a_missing_reader_is_detected(tmp_path: Path) -> None:
    assert "1 of 2 readers received something" in problems(tmp_path, correct_transcripts()[:2])


def test_a_changed_log_text_is_detected(tmp_path: Path) -> None:
    lines = json.loads(json.dumps(correct_transcripts()).replace("hi", "ho"))
    assert "stored is 'hi'" in problems(tmp_path, lines)
