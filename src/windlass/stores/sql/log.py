"""Codec of log rows in SQL stores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windlass.core.event import LogRow


def log_row(row: Sequence[Any]) -> LogRow:
    seq, at, type_, attempt, fence, record_n, facts, body = row
    return LogRow(
        seq=seq,
        at=at,
        type=type_,
        attempt=attempt,
        fence=fence,
        n=record_n,
        facts=json.loads(facts) if facts is not None else {},
        body=body,
    )


def log_insertion(n: int, row: LogRow) -> tuple[Any, ...]:
    facts = json.dumps(dict(row.facts), separators=(",", ":")) if row.facts else None
    return (
        n, row.seq, row.at, row.type, row.attempt, row.fence, row.n, facts, row.body
    )  # fmt: skip
