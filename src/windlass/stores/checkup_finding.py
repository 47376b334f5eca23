"""Finding of a checkup: the result of one check of `windlass check`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `fix` is the advice to the user."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""
