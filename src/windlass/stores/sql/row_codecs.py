"""Codecs that both SQL stores share: values of jobs, log rows, failed jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from windlass.core.clock import SECOND
from windlass.core.event import LogRow
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import FailedJob, Failure, Failures
from windlass.core.job.new_job import DEFAULT_POLICY
from windlass.core.job.retry_policy import Policy
from windlass.core.job.state import State, Trigger
from windlass.stores.sql.job_columns import Coding

NO_HEADERS: Mapping[str, str] = {}
_DEFAULT_POLICY_TEXT = DEFAULT_POLICY.encode()


@lru_cache(maxsize=256)
def _policy_text(policy: Policy) -> str | None:
    text = policy.encode()
    return None if text == _DEFAULT_POLICY_TEXT else text


# Expressions of codings that both stores decode and encode in the same way (see `row_compiler`).
DECODED_CODINGS = {
    Coding.STATE: "states[{0}]",
    Coding.TRIGGER: "triggers[{0}]",
    Coding.ON_PARENT: "parent_policies[{0}]",
    Coding.SECONDS: "None if {0} is None else {0} / SECOND",
    Coding.HEADERS: "no_headers if {0} is None else loads({0})",
    Coding.POLICY: "default_policy if {0} is None else decode_policy({0})",
    Coding.FAILURE: "None if {0} is None else decode_failure({0}, {error_body})",
}
ENCODED_CODINGS = {
    Coding.SECONDS: "None if {0} is None else round({0} * SECOND)",
    Coding.HEADERS: "dumps(dict({0})) if {0} else None",
    Coding.POLICY: "None if {0} is default_policy else policy_text({0})",
    Coding.FAILURE: "None if {0} is None else {0}.encode()",
}
CODING_NAMES: Mapping[str, Any] = {
    "SECOND": SECOND,
    "states": {state.value: state for state in State},
    "triggers": {trigger.value: trigger for trigger in Trigger},
    "parent_policies": {policy.value: policy for policy in OnParent},
    "no_headers": NO_HEADERS,
    "default_policy": DEFAULT_POLICY,
    "decode_policy": Policy.decode,
    "policy_text": _policy_text,
    "decode_failure": Failure.decode,
    "loads": json.loads,
    "dumps": json.dumps,
}


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


LOG_BODY_INDEX = 8  # in `log_insertion`


def log_insertion(n: int, row: LogRow) -> tuple[Any, ...]:
    data = json.dumps(dict(row.data), separators=(",", ":")) if row.data else None
    return (
        n, row.seq, row.at, row.type, row.attempt, row.fence, row.n, data, row.body
    )  # fmt: skip


def failures_of(rows: Sequence[Any], limit: int, scope: tuple[str | None, str | None]) -> Failures:
    """Build the failures from rows of the query `failures`, which reads up to `limit` + 1 rows."""
    owner, team = scope
    jobs = [
        FailedJob(
            id=id_,
            task=task,
            queue=queue,
            ended_at=ended_at,
            error=None if error is None else Failure.decode(error, body),
        )
        for id_, task, queue, ended_at, error, body, job_owner, job_team in rows[:limit]
        if owner in {None, job_owner} and team in {None, job_team}
    ]
    return Failures(jobs, capped=len(rows) > limit)
