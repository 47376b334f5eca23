"""Builder of decisions: collects the new values of a row and its log rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant, after
from windlass.core.decisions.transition import (
    ApplyResult,
    Changes,
    Checkpoint,
    Decision,
    RollupSample,
    Status,
    Transition,
)
from windlass.core.event import ATTEMPT, EventType, LogRow, Record
from windlass.core.job import failure as failures
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.progress import COMPLETE, advance
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import RESCUING, State, Trigger

_ENDED = {State.FAILED: "failed", State.CANCELED: "was canceled"}


def _crashed(transition: Transition) -> bool:
    """Whether its process died: the lease expired, or the worker saw its child process die."""
    return transition.crash or transition.trigger in RESCUING


class DecisionBuilder:
    """Builds one decision: collects new values, and assigns event numbers to log rows."""

    __slots__ = (
        "at",
        "checkpoints",
        "clear_waits",
        "log",
        "queued",
        "row",
        "sample",
        "seq",
        "values",
    )

    def __init__(self, row: LifecycleRow, at: Instant) -> None:
        self.row = row
        self.at = at
        self.seq = row.seq
        self.values: Changes = {"updated_at": at}
        self.log: list[LogRow] = []
        self.checkpoints: list[Checkpoint] = []
        self.queued = False
        self.clear_waits = False
        self.sample: RollupSample | None = None

    def next_seq(self) -> int:
        self.seq += 1
        self.values["seq"] = self.seq
        return self.seq

    def add(self, kind: str, data: dict[str, Any], body: bytes | None, n: int = 0) -> None:
        self.log.append(
            LogRow(
                seq=self.next_seq(),
                at=self.at,
                type=kind,
                attempt=self.row.attempt,
                fence=self.row.fence,
                n=n,
                data=data,
                body=body,
            )
        )

    def percent(self) -> int:
        return self.values.get("percent", self.row.percent)

    def stage(self) -> str | None:
        return self.values.get("stage", self.row.stage)

    def phase(self) -> str | None:
        return self.values.get("phase", self.row.phase)

    def add_records(self, records: Sequence[Record]) -> None:
        """Add the records that are new for this fence; drop repeats."""
        last_record = self.row.last_record
        for record in records:
            if record.n <= last_record:
                continue
            last_record = record.n
            named = {
                "step": record.step,
                "status": record.status,
                "stage": record.stage,
                "phase": record.phase,
            }
            data: dict[str, Any] = {k: v for k, v in named.items() if v is not None}
            if record.type is EventType.STEP_PROGRESS:
                self.values["percent"] = advance(self.percent(), record.percent)
                data["progressPct"] = self.percent()
                if record.stage is not None:
                    self.values["stage"] = record.stage
                if record.phase is not None:
                    self.values["phase"] = record.phase
            if record.checkpoint is not None and record.step is not None:
                self.checkpoints.append(
                    Checkpoint(record.step, record.checkpoint, self.row.attempt, self.at)
                )
                self.values["last_step"] = record.step
            self.add(record.type.value, data, record.body, record.n)
        self.values["last_record"] = last_record

    def end(self, to: State, transition: Transition) -> None:
        """End the job."""
        row, at = self.row, self.at
        self.values |= {
            "state": to,
            "trigger": transition.trigger,
            "held": False,
            "position": None,
            "due_at": None,
            "lease_until": None,
            "ended_at": at,
        }
        if row.gate is not None:
            self.values["gate"] = None
        if to is State.SUCCEEDED:
            self.values |= {"percent": COMPLETE, "result": transition.result, "error": None}
        elif to is State.FAILED and transition.error is not None:
            self.values["error"] = replace(transition.error, attempt=row.attempt, at=at)
        elif to is State.CANCELED and not row.cancel_requested:
            self.values["cancel_reason"] = transition.reason
        if _crashed(transition):
            self.values["crash_count"] = row.crash_count + 1
        self._stop_waiting()
        self.next_seq()
        self._add_sample(to)

    def end_with_parent(self, parent: UUID, ended: State) -> None:
        """End the job with its parent, by its `on_parent` policy."""
        row = self.row
        cancels = row.on_parent is OnParent.CANCEL
        transition = Transition(
            job_id=row.id,
            fence=row.fence,
            trigger=Trigger.PARENT_CANCEL if cancels else Trigger.PARENT_FAIL,
            reason=f"job {parent}, which it depends on, {_ENDED[ended]}",
            error=Failure(code=failures.PARENT_FAILED, kind=ErrorKind.TERMINAL),
        )
        self.end(State.CANCELED if cancels else State.FAILED, transition)

    def end_attempt(self, transition: Transition) -> None:
        """End the attempt but not the job: its lifecycle events move to one log row."""
        row, at = self.row, self.at
        error = replace(transition.error, attempt=row.attempt, at=at) if transition.error else None
        if _crashed(transition):
            self.values["crash_count"] = row.crash_count + 1
        elif transition.trigger is Trigger.RETRY:
            self.values["retry_count"] = row.retry_count + 1
        if error is not None:
            self.values["error"] = error
        data = {
            "token": str(row.token),
            "worker": row.worker,
            "queued_at": row.queued_at,
            "queued_seq": row.queued_seq,
            "started_at": row.started_at,
            "started_seq": row.started_seq,
            "base_percent": row.base_percent,
            "base_stage": row.base_stage,
            "base_phase": row.base_phase,
            "percent": self.percent(),
            "stage": self.stage(),
            "phase": self.phase(),
            "outcome": transition.trigger.value,
            "delay": transition.delay,
            "retry_count": self.values.get("retry_count", row.retry_count),
            "crash_count": self.values.get("crash_count", row.crash_count),
            "error": error.fields() if error else None,
        }
        self.add(ATTEMPT, data, error.body if error else None)
        self.values |= {
            "state": State.RETRYING,
            "trigger": transition.trigger,
            "lease_until": None,
            "queued_seq": 0,
            "started_seq": 0,
            "base_percent": self.percent(),
            "base_stage": self.stage(),
            "base_phase": self.phase(),
            "due_at": None if transition.delay is None else after(at, transition.delay),
        }
        self._add_sample(State.RETRYING)
        new_signal = transition.signals is not None and row.signals > transition.signals
        if transition.delay == 0 or (new_signal and transition.trigger is Trigger.SUSPEND):
            self.queue()

    def queue(self) -> None:
        """Put the job into its queue, or at its first gate; the store assigns the position."""
        self._stop_waiting()
        self.values |= {"held": False, "due_at": None}
        self.queued = True
        if self.row.gates:
            self.values["gate"] = self.row.gates[0]
        else:
            self.enter_queue()

    def enter_queue(self) -> None:
        self.values |= {
            "state": State.QUEUED,
            "queued_at": self.at,
            "started_at": None,
            "queued_seq": self.next_seq(),
        }
        self.queued = True

    def _stop_waiting(self) -> None:
        if self.values.get("waiting_for", self.row.waiting_for):
            self.values["waiting_for"] = 0
            self.clear_waits = True

    def _add_sample(self, outcome: State) -> None:
        row = self.row
        if row.started_at is not None and row.queued_at is not None and row.started_seq:
            self.sample = RollupSample(
                outcome, row.started_at - row.queued_at, self.at - row.started_at
            )
        else:
            self.sample = RollupSample(outcome, self.at - (row.queued_at or row.created_at), 0)

    def decision(self, children: Sequence[NewJob] = (), awaits: Sequence[UUID] = ()) -> Decision:
        return Decision(
            ApplyResult(Status.APPLIED, self.values.get("state", self.row.state)),
            self.values,
            self.log,
            self.checkpoints,
            children,
            self.queued,
            self.sample,
            awaits,
            self.clear_waits,
        )
