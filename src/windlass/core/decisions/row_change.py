"""A decision in the making: the new values of a row, and the lines of its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant, after
from windlass.core.decisions.transition import (
    Answer,
    Changes,
    Checkpoint,
    Decision,
    Status,
    Tally,
    Transition,
)
from windlass.core.event import ATTEMPT, EventType, LogRow, Record
from windlass.core.job import failure as failures
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.progress import COMPLETE, advance
from windlass.core.job.row import NewJob, Standing
from windlass.core.job.state import RESCUING, State, Trigger

_ENDED = {State.FAILED: "failed", State.CANCELED: "was canceled"}


def _crashed(wish: Transition) -> bool:
    """Whether its process died: the lease ran out, or the holder saw a child of its own die."""
    return wish.crash or wish.trigger in RESCUING


class Change:
    """A decision in the making: numbers the log rows and gathers the new values."""

    __slots__ = ("at", "checkpoints", "log", "queued", "row", "seq", "tally", "unwait", "values")

    def __init__(self, row: Standing, at: Instant) -> None:
        self.row = row
        self.at = at
        self.seq = row.seq
        self.values: Changes = {"updated_at": at}
        self.log: list[LogRow] = []
        self.checkpoints: list[Checkpoint] = []
        self.queued = False
        self.unwait = False
        self.tally: Tally | None = None

    def next_seq(self) -> int:
        self.seq += 1
        self.values["seq"] = self.seq
        return self.seq

    def add(self, kind: str, facts: dict[str, Any], body: bytes | None, n: int = 0) -> None:
        self.log.append(
            LogRow(
                seq=self.next_seq(),
                at=self.at,
                type=kind,
                attempt=self.row.attempt,
                fence=self.row.fence,
                n=n,
                facts=facts,
                body=body,
            )
        )

    def percent(self) -> int:
        return self.values.get("percent", self.row.percent)

    def stage(self) -> str | None:
        return self.values.get("stage", self.row.stage)

    def phase(self) -> str | None:
        return self.values.get("phase", self.row.phase)

    def say(self, records: Sequence[Record]) -> None:
        """Number the records that are new for this fence; repeats are dropped."""
        said = self.row.said
        for record in records:
            if record.n <= said:
                continue
            said = record.n
            named = {
                "step": record.step,
                "status": record.status,
                "stage": record.stage,
                "phase": record.phase,
            }
            facts: dict[str, Any] = {k: v for k, v in named.items() if v is not None}
            if record.type is EventType.STEP_PROGRESS:
                self.values["percent"] = advance(self.percent(), record.percent)
                facts["progressPct"] = self.percent()
                if record.stage is not None:
                    self.values["stage"] = record.stage
                if record.phase is not None:
                    self.values["phase"] = record.phase
            if record.checkpoint is not None and record.step is not None:
                self.checkpoints.append(
                    Checkpoint(record.step, record.checkpoint, self.row.attempt, self.at)
                )
                self.values["last_step"] = record.step
            self.add(record.type.value, facts, record.body, record.n)
        self.values["said"] = said

    def end(self, to: State, wish: Transition) -> None:
        """The job is over."""
        row, at = self.row, self.at
        self.values |= {
            "state": to,
            "trigger": wish.trigger,
            "held": False,
            "position": None,
            "due_at": None,
            "lease_until": None,
            "ended_at": at,
        }
        if row.gate is not None:
            self.values["gate"] = None
        if to is State.SUCCEEDED:
            self.values |= {"percent": COMPLETE, "result": wish.result, "error": None}
        elif to is State.FAILED and wish.error is not None:
            self.values["error"] = replace(wish.error, attempt=row.attempt, at=at)
        elif to is State.CANCELED and not row.cancel_requested:
            self.values["cancel_reason"] = wish.reason
        if _crashed(wish):
            self.values["crash_count"] = row.crash_count + 1
        self._wait_no_more()
        self.next_seq()
        self._count(to)

    def end_with(self, parent: UUID, ended: State) -> None:
        """Its parent was lost, and its policy is to go with it."""
        row = self.row
        cancels = row.on_parent is OnParent.CANCEL
        wish = Transition(
            job_id=row.id,
            fence=row.fence,
            trigger=Trigger.PARENT_CANCEL if cancels else Trigger.PARENT_FAIL,
            reason=f"job {parent}, which it depends on, {_ENDED[ended]}",
            error=Failure(code=failures.PARENT_FAILED, kind=ErrorKind.TERMINAL),
        )
        self.end(State.CANCELED if cancels else State.FAILED, wish)

    def leave_attempt(self, wish: Transition) -> None:
        """The attempt is over, the job is not: its story moves to the log."""
        row, at = self.row, self.at
        error = replace(wish.error, attempt=row.attempt, at=at) if wish.error else None
        if _crashed(wish):
            self.values["crash_count"] = row.crash_count + 1
        elif wish.trigger is Trigger.RETRY:
            self.values["retry_count"] = row.retry_count + 1
        if error is not None:
            self.values["error"] = error
        facts = {
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
            "outcome": wish.trigger.value,
            "delay": wish.delay,
            "retry_count": self.values.get("retry_count", row.retry_count),
            "crash_count": self.values.get("crash_count", row.crash_count),
            "error": error.facts() if error else None,
        }
        self.add(ATTEMPT, facts, error.body if error else None)
        self.values |= {
            "state": State.RETRYING,
            "trigger": wish.trigger,
            "lease_until": None,
            "queued_seq": 0,
            "started_seq": 0,
            "base_percent": self.percent(),
            "base_stage": self.stage(),
            "base_phase": self.phase(),
            "due_at": None if wish.delay is None else after(at, wish.delay),
        }
        self._count(State.RETRYING)
        news = wish.signals is not None and row.signals > wish.signals
        if wish.delay == 0 or (news and wish.trigger is Trigger.SUSPEND):
            self.queue()

    def queue(self) -> None:
        """Into the line, or to the first of its gates; the store gives the position."""
        self._wait_no_more()
        self.values |= {"held": False, "due_at": None}
        self.queued = True
        if self.row.gates:
            self.values["gate"] = self.row.gates[0]
        else:
            self.enter()

    def enter(self) -> None:
        self.values |= {
            "state": State.QUEUED,
            "queued_at": self.at,
            "started_at": None,
            "queued_seq": self.next_seq(),
        }
        self.queued = True

    def _wait_no_more(self) -> None:
        if self.values.get("waiting_for", self.row.waiting_for):
            self.values["waiting_for"] = 0
            self.unwait = True

    def _count(self, outcome: State) -> None:
        row = self.row
        if row.started_at is not None and row.queued_at is not None and row.started_seq:
            self.tally = Tally(outcome, row.started_at - row.queued_at, self.at - row.started_at)
        else:
            self.tally = Tally(outcome, self.at - (row.queued_at or row.created_at), 0)

    def decision(self, children: Sequence[NewJob] = (), awaits: Sequence[UUID] = ()) -> Decision:
        return Decision(
            Answer(Status.APPLIED, self.values.get("state", self.row.state)),
            self.values,
            self.log,
            self.checkpoints,
            children,
            self.queued,
            self.tally,
            awaits,
            self.unwait,
        )
