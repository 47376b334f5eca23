"""Codec of log rows in SQL stores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windlass.core.event import LogRow


def log_row(row: Sequence[Any]) -> LogRow:
    seq, at, type_, attempt, fence, record_n, data, body = row
    return LogRow(
        seq=seq,
        at=at,
        type=type_,
        attempt=attempt,
        fence=fence,
        n=record_n,
        data=json.loads(data) if data is not None else {},
        body=body,
    )


def log_insertion(n: int, row: LogRow) -> tuple[Any, ...]:
    data = json.dumps(dict(row.data), separators=(",", ":")) if row.data else None
    return (
        n, row.seq, row.at, row.type, row.attempt, row.fence, row.n, data, row.body
    )  # fmt: skip
