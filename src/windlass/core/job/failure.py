"""Failures of attempts, and lists of failed jobs."""

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
    """Whether an error is retried."""

    RETRYABLE = "RETRYABLE"
    TERMINAL = "TERMINAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Error of an attempt. `code` is plain text for filters; `body` is encoded by the codec.

    The body holds {type, message, traceback}. Maintenance has no codec and writes only the code.
    """

    code: str
    kind: ErrorKind
    step: str | None = None
    body: bytes | None = None
    attempt: int = 0
    at: Instant = 0

    @property
    def searchable_text(self) -> tuple[str, ...]:
        """Return type and message, if the body is plain JSON; empty if it is encrypted."""
        try:
            error = json.loads(self.body or b"null")
        except (ValueError, RecursionError):
            return ()
        found = (error.get("type"), error.get("message")) if isinstance(error, dict) else ()
        return tuple(text for text in found if isinstance(text, str))

    def fields(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "kind": self.kind.value,
            "step": self.step,
            "attempt": self.attempt,
            "at": self.at,
        }

    def encode(self) -> str:
        return json.dumps(self.fields(), separators=(",", ":"))

    @staticmethod
    def decode(text: str, body: bytes | None) -> Failure:
        return Failure.of(json.loads(text), body)

    @staticmethod
    def of(fields: dict[str, Any], body: bytes | None) -> Failure:
        return Failure(**{**fields, "kind": ErrorKind(fields["kind"])}, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """The fields of a failed job that are needed to group failures."""

    id: UUID
    task: str
    queue: str
    ended_at: Instant
    error: Failure | None


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed jobs, the newest first; `capped` if more failed than were read."""

    jobs: Sequence[FailedJob]
    capped: bool
