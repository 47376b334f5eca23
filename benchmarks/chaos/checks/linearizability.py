"""Linearizability check of the calls of one job. No Windlass code.

A history is a set of calls, each with a start and an end. It is linearizable if every call can be
assigned one instant in between, so that a sequential machine returns the same results. The machine
is `_moves`: a job in a hundred lines, independent of the rules of the stores. A call without a
received response may take effect at any time after its start, even after its sender gave up, or
never.

The search tries the orders that the times allow, caches visited states, and stops at the first
match (Wing and Gong, with Lowe's cache).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple, TypeAlias

CLOCK_TOLERANCE = 2e-6  # seconds: the clock of a store may round


class Kind(StrEnum):
    __hash__ = str.__hash__  # the enum's own hash is slow Python code, and it is used at every move

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    EXTEND = "extend"
    RECORD = "record"
    SETTLE = "settle"
    RESCUE = "rescue"
    PROMOTE = "promote"
    CANCEL = "cancel"
    READ = "read"


class Call(NamedTuple):
    """`trigger` is the trigger of a settle or rescue; an `answer` of None was never received.

    `fence` 0 is a claim with a lost response, whose fence is unknown.
    A read has the answer `seen` with the text of `shown`.
    """

    kind: Kind
    began: float
    ended: float = inf
    by: str = ""
    fence: int = 0
    token: Any = None
    trigger: str = ""
    seconds: float = 0.0  # of the requested lease
    answer: str | None = None
    state: str | None = None  # as returned
    cancel: bool | None = None  # as returned by an extension
    crash: bool = False  # whether a settle reports a crash


class JobState(NamedTuple):
    """State of a job. `soonest` and `latest` bound the end of its lease."""

    state: str = "none"
    fence: int = 0
    token: Any = None
    cancel: bool = False
    soonest: float = 0.0
    latest: float = 0.0
    ends: frozenset[tuple[int, Any, str]] = frozenset()  # ends of attempts, to recognize repeats
    errors: int = 0
    crashes: int = 0


def shown(*, state: str, fence: int, attempt: int, errors: int, crashes: int, cancel: bool) -> str:
    """Return a row as text, for the answer of a read."""
    requested = ", cancel requested" if cancel else ""
    return (
        f"{state}: fence {fence}, attempt {attempt}, {errors} errors, {crashes} crashes{requested}"
    )


TransitionResult: TypeAlias = tuple[str, str | None]  # the result and its state; None matches any
Move: TypeAlias = tuple[TransitionResult, JobState]
_WAITING = {"created", "queued", "retrying"}
_FINAL_STATE = {"succeed": "succeeded", "fail": "failed", "abort": "canceled", "give-up": "failed"}


def _moves(at: JobState, call: Call) -> Iterator[Move]:
    """Yield every result and next state of this call in state `at`, between `began` and `ended`."""
    held = at.state == "running" and (at.fence, at.token) == (call.fence, call.token)
    return _MACHINE[call.kind](at, call, held)


def _enqueue(at: JobState, _: Call, __: bool) -> Iterator[Move]:
    if at.state != "none":
        yield ("applied", None), at
        return
    for state in ("queued", "created"):
        yield ("applied", None), at._replace(state=state)


def _claim(at: JobState, call: Call, held: bool) -> Iterator[Move]:
    if at.state == "queued" and call.fence in {0, at.fence + 1}:
        began = at._replace(state="running", fence=at.fence + 1, token=call.token)
        yield ("applied", "running"), _leased(began._replace(soonest=0.0, latest=0.0), call)
    if held:
        yield ("applied", "running"), at  # a repeat after a lost response


def _extend(at: JobState, call: Call, held: bool) -> Iterator[Move]:
    if held:
        yield ("applied", str(at.cancel)), _leased(at, call)
    else:
        yield ("stale", None), at


def _record(at: JobState, _: Call, held: bool) -> Iterator[Move]:
    """Only the lease holder can record, and a record changes no state."""
    if at.state == "none":
        yield ("missing", None), at
    else:
        yield ("applied" if held else "stale", at.state), at


def _rescue(at: JobState, call: Call, held: bool) -> Iterator[Move]:
    if not held or call.ended >= at.soonest:
        yield from _end(at, call, held)
    if not held or call.began < at.latest:  # the attempt has changed, or its lease was extended
        yield ("stale", None), at
        yield ("conflict", at.state), at


def _promote(at: JobState, call: Call, _: bool) -> Iterator[Move]:
    if at.state in {"created", "retrying"} and at.fence == call.fence:
        yield ("applied", "queued"), at._replace(state="queued")
    if at.state == "queued":
        yield ("applied", "queued"), at
    for answer in ("stale", "conflict"):
        yield (answer, None), at


def _mark(call: Call) -> tuple[int, Any, str]:
    return call.fence, call.token, call.trigger


def _leased(at: JobState, call: Call) -> JobState:
    """Extend the lease; a shorter extension leaves it unchanged."""
    soonest, latest = (
        call.began + call.seconds - CLOCK_TOLERANCE,
        call.ended + call.seconds + CLOCK_TOLERANCE,
    )
    return at._replace(soonest=max(at.soonest, soonest), latest=max(at.latest, latest))


def _end(at: JobState, call: Call, held: bool) -> Iterator[Move]:
    if held:
        crashed = call.crash or call.kind is Kind.RESCUE
        failed = call.trigger == "retry" and not (crashed or at.cancel)
        after = at._replace(
            token=None,
            ends=at.ends | {_mark(call)},
            errors=at.errors + failed,
            crashes=at.crashes + crashed,
        )
        final = "canceled" if at.cancel else _FINAL_STATE.get(call.trigger)
        for state in (final,) if final else ("retrying", "queued"):
            yield ("applied", state), after._replace(state=state)
    elif _mark(call) in at.ends:
        yield ("applied", None), at
    else:
        yield ("stale", None), at


def _cancel(at: JobState, _: Call, __: bool) -> Iterator[Move]:
    if at.state in _WAITING:
        yield ("applied", "canceled"), at._replace(state="canceled")
    elif at.state == "running":
        yield ("applied", "running"), at._replace(cancel=True)
    elif at.state == "canceled":
        yield ("applied", "canceled"), at
        yield ("conflict", "canceled"), at
    elif at.state == "none":
        yield ("missing", None), at
    else:
        yield ("conflict", at.state), at


def _read(at: JobState, _: Call, __: bool) -> Iterator[Move]:
    row = shown(
        state=at.state,
        fence=at.fence,
        attempt=at.fence,  # each claim starts one attempt
        errors=at.errors,
        crashes=at.crashes,
        cancel=at.cancel,
    )
    yield ("seen", row), at


_MACHINE: dict[Kind, Callable[[JobState, Call, bool], Iterator[Move]]] = {
    Kind.ENQUEUE: _enqueue,
    Kind.CLAIM: _claim,
    Kind.EXTEND: _extend,
    Kind.RECORD: _record,
    Kind.SETTLE: _end,
    Kind.RESCUE: _rescue,
    Kind.PROMOTE: _promote,
    Kind.CANCEL: _cancel,
    Kind.READ: _read,
}
_TIMED = {Kind.CLAIM, Kind.EXTEND, Kind.RESCUE}  # calls that depend on the clock


def _fits(call: Call, reported: TransitionResult) -> bool:
    answer, state = reported
    if call.answer is None:
        return True
    received = str(call.cancel) if call.kind is Kind.EXTEND else call.state
    return call.answer == answer and (state is None or received is None or received == state)


def explain(history: Sequence[Call]) -> str | None:
    """Return None if the history is linearizable, else the longest matching prefix."""
    calls = sorted(history, key=lambda call: (call.began, call.ended))
    needed = sum(1 << n for n, call in enumerate(calls) if call.answer is not None)
    todo: list[tuple[int, JobState]] = [(0, JobState())]
    seen = {todo[0]}
    furthest = todo[0]
    while todo:
        done, at = todo.pop()
        if done & needed == needed:
            return None
        if (done & needed).bit_count() > (furthest[0] & needed).bit_count():
            furthest = done, at
        for n in _next(calls, done):
            for reported, after in _moves(at, _narrowed(calls, done, n)):
                step = (done | 1 << n, after)
                if _fits(calls[n], reported) and step not in seen:
                    seen.add(step)
                    todo.append(step)
    return _longest_prefix(calls, *furthest)


def _narrowed(calls: Sequence[Call], done: int, n: int) -> Call:
    """Return the call with the times that remain: after done calls, before all others."""
    if calls[n].kind not in _TIMED:
        return calls[n]
    began = max(call.began for m, call in enumerate(calls) if m == n or done >> m & 1)
    ended = min(call.ended for m, call in enumerate(calls) if m == n or not done >> m & 1)
    return calls[n]._replace(began=began, ended=ended)


def _next(calls: Sequence[Call], done: int) -> Iterator[int]:
    """Return the calls that may be next: no other call ended before their start."""
    bar = inf
    for n, call in enumerate(calls):
        if call.began > bar:
            return
        if not done >> n & 1:
            yield n
            bar = min(bar, call.ended)


def _longest_prefix(calls: Sequence[Call], done: int, at: JobState) -> str:
    lines = [f"after {at.state!r} with fence {at.fence} no call fits; * marks the calls that do:"]
    for n, call in enumerate(calls):
        mark = "*" if done >> n & 1 else " "
        description = f"{call.kind} {call.trigger} fence {call.fence} by {call.by}"
        lines.append(
            f"{mark} {call.began:.6f}-{call.ended:.6f} {description}: {call.answer} {call.state}"
        )
    return "\n".join(lines)
