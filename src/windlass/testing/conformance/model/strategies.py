"""Hypothesis strategies for the arguments of the model's rules.

Options are plain mappings; later ones override earlier ones. So a failing history shrinks to the
few options that matter. Some options are invalid: a store must reject them, and only them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from windlass.core import size_limits
from windlass.core.admission.limit import Limit
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
)
from windlass.core.event import EventType
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.new_job import CORRELATION_ID
from windlass.core.job.retry_policy import Policy, delays, fixed
from windlass.core.job.state import State, Trigger
from windlass.core.versioned_record import Put
from windlass.store import Retention

QUEUES = ("default", "mail", "video")
FLOW = UUID(int=77)
Options = Mapping[str, Any]

pick = st.integers(0, 40)  # index of a job, the newest first
picks = st.lists(pick, min_size=1, max_size=3)


class Oversize(bytes):
    """Bytes with a short repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Oversize({len(self)})"


_JOB: list[Options] = [
    {"queue": "mail"},
    {"queue": "video"},
    {"task": "two"},
    {"payload": b'{"a":1}'},
    {"payload": b""},
    {"priority": 5},
    {"priority": -3},
    {"priority": size_limits.MAX_PRIORITY},
    {"delay": 4.0},
    {"delay": 0.000_001},
    {"run_in": 9.0},
    {"run_in": -9.0},
    {"hold": True},
    {"hold": True, "delay": 6.0},
    {"expires_in": 5.0},
    {"expires_after": 12.0},
    {"expires_after": -1.0},
    {"lease": 7.5},
    {"policy": Policy(max_retries=0, crash_cap=1)},
    {"policy": Policy(backoff=fixed(2), max_retries=1, crash_cap=2, timeout=3.0)},
    {"policy": Policy(backoff=delays([1, 5]), max_retries=9)},
    {"owner": "ann"},
    {"owner": "bob"},
    {"team": "red"},
    {"tags": ("x",)},
    {"tags": ("y", "x")},
    {"headers": {CORRELATION_ID: "c-1", "trace": "☃"}},
    {"unique_key": "k"},
    {"unique_key": "k"},
    {"unique_key": ""},
    {"unique_key": "k", "debounce": True},
    {"request_id": "r"},
    {"request_id": "r", "digest": b"1"},
    {"request_id": "r", "digest": b"2"},
    {"digest": b"2"},
    {"again": 0},
    {"again": 3},
    {"retry": 0},
    {"retry": 1},
    {"retry": 0, "resume": True},
    {"retry": 2, "resume": True},
    {"retry_of": None, "resume": True},
    {"depends": (0,)},
    {"depends": (0, 1)},
    {"depends": (2, 0, 3)},
    {"depends": (1,), "on_parent": OnParent.FAIL},
    {"depends": (0, 2), "on_parent": OnParent.RUN},
    {"depends": (0,), "delay": 4.0},
    {"depends": (0,), "hold": True},
    {"flow_id": FLOW},
    {"limit_key": "k1"},
    {"limit_key": "k1"},
    {"limit_key": "k2"},
    {"limit_key": "k2", "queue": "mail"},
]
_BAD_JOB: list[Options] = [
    {"task": ""},
    {"priority": size_limits.MAX_PRIORITY + 1},
    {"delay": -1.0},
    {"tags": ("t",) * (size_limits.MAX_TAGS + 1)},
    {"unique_key": "k" * (size_limits.MAX_KEY + 1)},
    {"limit_key": "k" * (size_limits.MAX_KEY + 1)},
    {"depends": (0, 0)},
    {"depends_on": (UUID(int=1),)},
]
jobs = st.lists(st.sampled_from([*_JOB * 6, *_BAD_JOB]), max_size=4)
shared = st.sampled_from(
    [
        [],
        [],
        [],
        [{"unique_key": "k"}],
        [{"unique_key": "k", "debounce": True}],
        [{"request_id": "r"}],
        [{"request_id": ""}],
    ]
)

# Jobs have the queue "default" and the task "one" unless their options change it.
limited = st.sampled_from(["queue:default", "task:one", "key:one", "queue:mail", "task:two"])
_LIMITS = [
    Limit(concurrency=1),
    Limit(concurrency=2),
    Limit(starts=1, period=10.0),
    Limit(starts=2, period=10.0),
    Limit(concurrency=1, starts=2, period=10.0),
]
bounds = st.sampled_from([None, *_LIMITS])
bounded = st.lists(st.tuples(limited, st.sampled_from(_LIMITS)), max_size=2)

burst_jobs = st.sampled_from(
    [
        {},
        {},
        {"limit_key": "k1"},
        {"limit_key": "k1"},
        {"limit_key": "k2"},
        {"queue": "mail", "limit_key": "k2"},
        {"task": "two"},
        {"priority": 5},
        {"expires_in": 5.0},
    ]
)

claims = st.sampled_from(
    [
        [("default", 1)],
        [("default", 3)],
        [("mail", 9), ("default", 9), ("video", 9)],
        [("default", 2), ("mail", 2)],
        [("video", 1), ("mail", 9), ("default", 1)],
        [("mail", 0), ("video", 5)],
        [("nowhere", 5)],
        [("default", 1), ("default", 2)],
        [],
    ]
)
leases = st.sampled_from([None, 5.0, 60.0])
forgeries = st.sampled_from([*["none"] * 6, "stale", "token", "fence"])
owners = st.sampled_from([None, None, "", "ann"])
jitter = st.sampled_from([0.0, 0.5, 0.999])

_RECORDS: list[Options] = [
    {"type": EventType.STEP_PROGRESS, "percent": 10.0, "stage": "plan", "phase": "planning"},
    {"type": EventType.STEP_PROGRESS, "percent": 55.5, "step": "cut", "body": b'{"message":"m"}'},
    {"type": EventType.STEP_PROGRESS, "percent": 40.0, "stage": "render"},
    {"type": EventType.STEP_PROGRESS, "percent": 170.0},
    {"type": EventType.STEP_PROGRESS, "percent": -1.0, "phase": "voice"},
    {"type": EventType.STEP_PROGRESS},
    {"type": EventType.STEP_STATUS, "step": "cut", "status": "completed", "checkpoint": b"[1]"},
    {"type": EventType.STEP_STATUS, "step": "cut", "status": "completed", "checkpoint": b"[2]"},
    {"type": EventType.STEP_STATUS, "step": "mix", "status": "completed", "checkpoint": b""},
    {"type": EventType.LOG, "body": b'{"level":"info","message":"\xe2\x98\x83"}'},
    {"type": EventType.WARNING, "body": b"{}", "stage": "plan"},
    {"type": EventType.OUTPUT, "body": b""},
]
_BAD_RECORDS: list[Options] = [
    {"type": EventType.STEP_STATUS, "checkpoint": b"no step"},
    {"type": EventType.LOG, "body": Oversize(size_limits.MAX_EVENT + 1)},
]
_records = st.tuples(
    st.sampled_from([1, 1, 1, 1, 0, 2]), st.sampled_from([*_RECORDS * 6, *_BAD_RECORDS])
)
record_contents = st.lists(_records, max_size=3)
percents = st.sampled_from([90.0, 5.0, 33.3])
last_records = st.lists(_records, max_size=2)

_ERROR = Failure(code="ValueError", kind=ErrorKind.RETRYABLE, step="cut", body=b'{"message":"m"}')
_TERMINAL = Failure(code="invalid_input", kind=ErrorKind.TERMINAL)
# Replaced by the ids of the children of the same settle, and one other id.
CHILDREN = Suspended(awaits=(UUID(int=0),))
_OUTCOMES: list[Outcome] = [
    Succeeded(result=b'{"ok":true}'),
    Succeeded(result=b'{"ok":true}'),
    Succeeded(result=b""),
    Succeeded(),
    Failed(failure=_ERROR),
    Failed(failure=_ERROR),
    Failed(failure=_ERROR, delay=0.0),
    Failed(failure=_ERROR, delay=3.0),
    Failed(failure=_TERMINAL),
    Released(),
    Snoozed(delay=0.0),
    Snoozed(delay=7.0),
    Suspended(),
    Suspended(timeout=4.0),
    Suspended(signals=0),
    Suspended(signals=1, timeout=9.0),
    CHILDREN,
    CHILDREN,
    replace(CHILDREN, timeout=5.0),
    Aborted(reason="not wanted"),
]
_BAD_OUTCOMES: list[Outcome] = [
    Succeeded(result=Oversize(size_limits.MAX_BLOB + 1)),
    Snoozed(delay=-1.0),
]
outcomes = st.sampled_from([*_OUTCOMES * 4, *_BAD_OUTCOMES])
mostly_successes = st.sampled_from([*[Succeeded()] * 6, *_OUTCOMES])
waiting_moves = st.sampled_from(
    [
        Trigger.SUBMIT,
        Trigger.SUBMIT,
        Trigger.PROMOTE,
        Trigger.EXPIRE,
        Trigger.PARENT_CANCEL,
        Trigger.PARENT_FAIL,
        Trigger.SUCCEED,
        Trigger.CANCEL,
        Trigger.CLAIM,
    ]
)
retentions = st.sampled_from(
    [
        Retention(),
        Retention(succeeded=20.0, canceled=20.0, failed=40.0, log=5.0),
        Retention(succeeded=60.0, canceled=5.0, failed=90.0, log=5.0),
        Retention(succeeded=0, canceled=0, failed=0, log=1.0),
        Retention(succeeded=1.0, canceled=0, failed=0, log=0),
    ]
)
later = st.sampled_from([0.0, 2.0, 25.0, 100.0])
clock_steps = st.sampled_from([0.000_001, 1.0, 5.0, 12.0, 31.0, 70.0, -0.5, -3.0])

keys = st.sampled_from(["", "a", "b", "c"])
puts = st.lists(
    st.builds(
        Put,
        kind=st.sampled_from(["kind", "kind", "kine"]),
        key=keys,
        value=st.sampled_from([b"", b"1", b"2"]),
        expected=st.sampled_from([None, 0, 1, 2]),
        ttl=st.sampled_from([None, None, 4.0]),
    ),
    max_size=3,
)

_FILTERS: list[Options] = [
    {"states": frozenset({State.QUEUED, State.RUNNING})},
    {"states": frozenset({State.FAILED})},
    {"states": frozenset({State.SUCCEEDED, State.CANCELED})},
    {"queues": frozenset({"mail", "nowhere"})},
    {"tasks": frozenset({"two"})},
    {"owner": ""},
    {"owner": "ann"},
    {"team": "red"},
    {"tags": frozenset({"x"})},
    {"tags": frozenset({"x", "y"})},
    {"error": "ValueError"},
    {"text": "RROR"},
    {"text": "x"},
    {"worker": "w1"},
    {"request_id": "r"},
    {"unique_key": "k"},
    {"retried": True},
    {"flow_id": FLOW},
    {"created_from": 6},
    {"created_to": 6},
]
filters = st.lists(st.sampled_from(_FILTERS), max_size=2)
signals = st.lists(st.sampled_from(["go", "go", "stop", ""]), min_size=1, max_size=2)
mixed_requests = st.lists(
    st.tuples(st.sampled_from(["settle", "settle", "cancel", "go", "stop"]), pick, outcomes),
    min_size=2,
    max_size=4,
)
