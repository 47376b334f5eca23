"""What went wrong: the part the store may read, and the part only the codec can."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant

CRASHED = "crashed"
EXPIRED = "expired"
TIMEOUT = "timeout"
UNKNOWN_TASK = "unknown_task"
PARENT_FAILED = "parent_failed"


class ErrorKind(StrEnum):
    RETRYABLE = "RETRYABLE"
    TERMINAL = "TERMINAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An attempt's error. `code` is plain, for filters and groups; `body` is the codec's bytes.

    The body holds {type, message, traceback}; maintenance, which has no codec, leaves it out and
    the code alone tells the story.
    """

    code: str
    kind: ErrorKind
    step: str | None = None
    body: bytes | None = None
    attempt: int = 0
    at: Instant = 0

    @property
    def words(self) -> tuple[str, ...]:
        """Its type and message, as far as they can be read without a codec: as plain JSON."""
        try:
            said = json.loads(self.body or b"null")
        except (ValueError, RecursionError):
            return ()
        found = (said.get("type"), said.get("message")) if isinstance(said, dict) else ()
        return tuple(word for word in found if isinstance(word, str))

    def facts(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "kind": self.kind.value,
            "step": self.step,
            "attempt": self.attempt,
            "at": self.at,
        }

    def encode(self) -> str:
        return json.dumps(self.facts(), separators=(",", ":"))

    @staticmethod
    def decode(text: str, body: bytes | None) -> Failure:
        return Failure.of(json.loads(text), body)

    @staticmethod
    def of(facts: dict[str, Any], body: bytes | None) -> Failure:
        return Failure(**{**facts, "kind": ErrorKind(facts["kind"])}, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """As much of a failed job as is needed to tell what went wrong."""

    id: UUID
    task: str
    queue: str
    ended_at: Instant
    error: Failure | None


@dataclass(frozen=True, slots=True)
class Failures:
    """Jobs that failed, the last first; `capped` if more did than were looked at."""

    jobs: Sequence[FailedJob]
    capped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """For people: what failed, where, of which sort, and what to try."""

    what: str
    stage: str | None
    sort: str
    advice: str


_ADVICE = {
    CRASHED: (
        "the worker process died while running it",
        (
            "look for out-of-memory kills or a crashing native library; "
            "give the task more memory, or fix the input it dies on, then retry the job"
        ),
    ),
    EXPIRED: (
        "it waited past its expiry",
        "start more workers for its queue, or give the job a later expires_at",
    ),
    TIMEOUT: (
        "it ran longer than its timeout",
        "raise the task's timeout, or split the work into steps, then resume the job",
    ),
    UNKNOWN_TASK: (
        "no worker knew its task",
        "deploy a worker that has the task, or name the old name in aliases=, then retry the job",
    ),
    PARENT_FAILED: ("a job it depends on failed", "see to the parent, then retry the flow"),
    "children_failed": (
        "jobs that it made and waited for did not succeed",
        "see to those that the error names, then retry the job",
    ),
    "invalid_input": ("its arguments cannot be worked with", "enqueue a corrected job"),
    "invalid_result": (
        "what it returned cannot be stored",
        "return plain data, or keep large data in a file and return its address; then retry",
    ),
    "missing_input": ("something it needs is gone", "restore what is missing, then retry the job"),
    "configuration": ("the worker is set up wrongly", "correct the setting, then retry the job"),
    "authentication": ("an outside system refused access", "renew the credentials, then retry"),
    "quota_exceeded": ("a quota is used up", "raise the quota, then retry the job"),
    "insufficient_resources": ("it needs more than this machine has", "use a larger worker"),
    "constraint_violation": ("the data forbids it", "correct the data, then retry the job"),
}
_BY_KIND = {
    ErrorKind.RETRYABLE: (
        "it failed in every attempt it was allowed",
        "read the last error; if the cause has passed, retry the job",
    ),
    ErrorKind.TERMINAL: ("it failed in a way that a retry does not mend", "read the error"),
}


def details(failure: Failure, *, task: str, stage: str | None) -> FailureDetails:
    sort, advice = _ADVICE.get(failure.code, _BY_KIND[failure.kind])
    where = f" in step {failure.step!r}" if failure.step else ""
    return FailureDetails(
        what=f"{task} failed with {failure.code}{where} in attempt {failure.attempt}",
        stage=stage,
        sort=sort,
        advice=advice,
    )
