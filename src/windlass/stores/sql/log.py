"""Lines of a job's log: the core's values, and the columns that SQL stores give them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windlass.core.event import LogRow


def log_row(r: Sequence[Any]) -> LogRow:
    seq, at, kind, attempt, fence, said, facts, body = r
    return LogRow(
        seq=seq,
        at=at,
        type=kind,
        attempt=attempt,
        fence=fence,
        n=said,
        facts=json.loads(facts) if facts is not None else {},
        body=body,
    )


def log_insertion(n: int, line: LogRow) -> tuple[Any, ...]:
    facts = json.dumps(dict(line.facts), separators=(",", ":")) if line.facts else None
    return (
        n, line.seq, line.at, line.type, line.attempt, line.fence, line.n, facts, line.body
    )  # fmt: skip
