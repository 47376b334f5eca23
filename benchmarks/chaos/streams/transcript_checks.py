"""Compares the transcripts of stream readers with the raw tables. Imports no Windlass code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.stores import Row
from benchmarks.chaos.streams.readers import messages

_LAST = {"succeeded": "job-completed", "failed": "job-failed", "canceled": "job-cancelled"}
_STATUS = "job-status"
_ALLOWED = (b"retry: ", b": keepalive: ", b"id: ", b"event: ", b"data: ")
_NO_CONTENT, _UNAVAILABLE = 204, 503
EventRef: TypeAlias = tuple[str, str]  # the id of an event, and its type


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader with its connections in order."""

    number: int
    job: str
    connections: list[Row] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"reader {self.number} of job {self.job}"


@lru_cache(maxsize=1)  # every check reads it, and it may have hundreds of megabytes
def read(directory: Path) -> list[Reader]:
    readers: dict[int, Reader] = {}
    with (directory / "streams" / "transcript.jsonl").open() as file:
        for text in file:
            if not text.endswith("\n"):
                break  # the readers were killed; another check reports it
            line = json.loads(text)
            line["body"] = line["body"].encode("utf-8", "surrogateescape")
            line["reported"] = messages(line["body"])
            number = line["reader"]
            readers.setdefault(number, Reader(number, line["job"])).connections.append(line)
    return [readers[number] for number in sorted(readers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStreams:
    """Totals: connections, the maximum of open ones, and received events."""

    readers: int
    connections: int
    most: int
    events: int
    cut: int  # connections that ended within a response


def stream_counts(directory: Path) -> dict[str, int]:
    """Return the open streams `now` and at `most`, and the number of readers that are `done`."""
    file = directory / "streams" / "open"
    return json.loads(file.read_text()) if file.exists() else {"now": 0, "most": 0, "done": 0}


def observed_streams(directory: Path) -> ObservedStreams | None:
    if not (directory / "streams").exists():
        return None
    readers = read(directory)
    made = [connection for reader in readers for connection in reader.connections]
    return ObservedStreams(
        readers=len(readers),
        connections=len(made),
        most=stream_counts(directory)["most"],
        events=sum(len(connection["reported"]) for connection in made),
        cut=sum(not connection["whole"] for connection in made),
    )


def log_of(row: Row, lines: list[Row]) -> list[EventRef]:
    """Return every event of a job, from its row and its log."""
    found = {1: (row["created_at"], _STATUS)}
    for held, kind in ((row, None), *((line["data"], line["type"]) for line in lines)):
        if kind in {None, "attempt"}:
            for name in ("queued", "started"):
                if held[f"{name}_seq"]:
                    found[held[f"{name}_seq"]] = (held[f"{name}_at"], _STATUS)
    for line in lines:
        found[line["seq"]] = line["at"], _STATUS if line["type"] == "attempt" else line["type"]
    if row["ended_at"] is not None:
        found[row["seq"]] = row["ended_at"], _LAST.get(row["state"], "?")
    return [(f"{at // 1000}-{seq}", kind) for seq, (at, kind) in sorted(found.items())]


def transcripts_equal_the_log(evidence: Evidence) -> Iterator[str]:
    """The events of all connections of a reader, in sequence, are the log: complete, each once."""
    if not (evidence.directory / "streams").exists():
        return
    readers = read(evidence.directory)
    if len(readers) != evidence.plan["connections"]:
        yield f"{len(readers)} of {evidence.plan['connections']} readers received something"
    logs = {row["id"]: log_of(row, evidence.log.get(row["n"], [])) for row in evidence.jobs}
    message: dict[tuple[str, str], str] = {}
    for reader in readers:
        log = logs.get(reader.job, [])
        seen: list[EventRef] = []
        for connection in reader.connections:
            yield from _check_response(reader, connection, seen, log)
            for event_id, kind, data in connection["reported"]:
                seen.append((event_id, kind))
                if message.setdefault((reader.job, event_id), data) != data:
                    yield f"{reader.name}: {event_id} has different data: {data:.200}"
        if seen != log:
            yield f"{reader.name}: {_difference(seen, log)}"
        last = reader.connections[-1]["status"]
        if last != _NO_CONTENT:
            yield f"{reader.name} did not receive 204 at the end, but {last}"


def _check_response(
    reader: Reader, connection: Row, seen: list[EventRef], log: list[EventRef]
) -> Iterator[str]:
    """Check the form of one response."""
    status, body, whole = connection["status"], connection["body"], connection["whole"]
    before = seen[-1][0] if seen else None
    if connection["after"] != before:
        yield f"{reader.name} requested events after {connection['after']}, but has {before}"
    if status == _NO_CONTENT:
        if body or seen != log:
            yield f"{reader.name} received 204 after {before}"
        return
    if status == _UNAVAILABLE:
        return
    if status not in {200, None}:
        yield f"{reader.name} received status {status}"
        return
    if whole and not body.endswith(b"\n\n"):
        yield f"{reader.name}: a stream ended in the middle of a message"
    lines = body[: body.rfind(b"\n") + 1].split(b"\n")
    for line in lines:
        if line and not line.startswith(_ALLOWED):
            yield f"{reader.name} received the line {line!r:.80}"


def _difference(seen: list[EventRef], log: list[EventRef]) -> str:
    if len(set(seen)) < len(seen):
        twice = next(event for index, event in enumerate(seen) if event in seen[:index])
        return f"{twice[0]} was received twice"
    for reported, stored in zip(seen, log, strict=False):
        if reported != stored:
            return f"received {reported}; the log has {stored}"
    return f"received {len(seen)} events; the log has {len(log)}"


def log_texts_match_the_task(evidence: Evidence) -> Iterator[str]:
    """Log events have the stored text."""
    if not (evidence.directory / "streams").exists():
        return
    stored = {
        (row["id"], f"{line['at'] // 1000}-{line['seq']}"): json.loads(bytes(line["body"]))
        for row in evidence.jobs
        for line in evidence.log.get(row["n"], ())
        if line["type"] == "log"
    }
    reported = {
        (reader.job, event_id, data)
        for reader in read(evidence.directory)
        for connection in reader.connections
        for event_id, kind, data in connection["reported"]
        if kind == "log"
    }
    for job, event_id, data in sorted(reported):
        arguments = stored.get((job, event_id), {}).get("message")
        if json.loads(data)["message"] != arguments:
            yield f"job {job}: {event_id} says {data:.80}; stored is {arguments!r}"


CHECKS = (transcripts_equal_the_log, log_texts_match_the_task)
