"""How long to wait before the next attempt, as data that the row carries.

A policy is stored with the job, so that a rescue needs no task code. Delays are seconds; the store
turns them into instants by its own clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, assert_never

from windlass.core.duration import Duration, seconds
from windlass.core.errors import InvalidArgumentError

Random = Callable[[], float]  # uniform in [0, 1)
_MAX_DOUBLINGS = 62
MAX_DELAY = 10 * 365 * 86_400.0


def _not_negative(what: str, value: float) -> None:
    if not 0 <= value <= MAX_DELAY:
        raise InvalidArgumentError(f"{what} is {value!r}; it must lie between 0 and 10 years")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """random(0, min(base · 2^n, cap)); with jitter "none" the bound itself."""

    base: float = 0.5
    cap: float = 30.0
    jitter: Literal["full", "none"] = "full"

    def __post_init__(self) -> None:
        _not_negative("base", self.base)
        _not_negative("cap", self.cap)
        if self.jitter not in ("full", "none"):
            raise InvalidArgumentError(f'jitter is {self.jitter!r}; it must be "full" or "none"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    seconds: float = 1.0

    def __post_init__(self) -> None:
        _not_negative("the delay", self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One delay per retry, the last one repeating, each spread by ± jitter."""

    delays: tuple[float, ...]
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not self.delays:
            raise InvalidArgumentError("a schedule needs at least one delay")
        for delay in self.delays:
            _not_negative("a delay", delay)
        if not 0 <= self.jitter <= 1:
            raise InvalidArgumentError(f"jitter is {self.jitter!r}; it must lie between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """A function of one's own, asked where the task's code is; a rescue follows `otherwise`."""

    function: Callable[[int], float] = field(compare=False)
    otherwise: Exponential | Fixed | Schedule = Exponential()


Backoff: TypeAlias = Exponential | Fixed | Schedule | Custom


def exponential(
    base: Duration = 0.5, cap: Duration = 30.0, jitter: Literal["full", "none"] = "full"
) -> Exponential:
    """Twice as long each time, up to the cap, and at random below that."""
    return Exponential(base=seconds(base, "base"), cap=seconds(cap, "cap"), jitter=jitter)


def fixed(delay: Duration = 1.0) -> Fixed:
    """The same delay each time."""
    return Fixed(seconds=seconds(delay, "the delay"))


def schedule(delays: Sequence[Duration], jitter: float = 0.2) -> Schedule:
    """One delay per retry, the last one repeating, each spread by ± jitter."""
    return Schedule(delays=tuple(seconds(delay, "a delay") for delay in delays), jitter=jitter)


def custom(
    function: Callable[[int], float], otherwise: Exponential | Fixed | Schedule | None = None
) -> Custom:
    """Seconds by a function of one's own, from the number of the retry, 0 for the first."""
    return Custom(function=function, otherwise=otherwise or Exponential())


def delay(backoff: Backoff, n: int, random: Random) -> float:
    """Seconds before retry number n, counted from 0 for the first."""
    match backoff:
        case Exponential(base=base, cap=cap, jitter=jitter):
            bound = min(base * 2.0 ** min(n, _MAX_DOUBLINGS), cap)
            return bound * random() if jitter == "full" else bound
        case Fixed(seconds=wait):
            return wait
        case Schedule(delays=delays, jitter=jitter):
            return delays[min(n, len(delays) - 1)] * (1 + jitter * (2 * random() - 1))
        case Custom(function=function):
            chosen = float(function(n))
            if chosen != chosen:  # noqa: PLR0124 - not a number: follow what the row says
                return delay(backoff.otherwise, n, random)
            return min(max(chosen, 0.0), MAX_DELAY)
        case _:
            assert_never(backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that decides how often and how long a job is tried."""

    backoff: Backoff = Exponential()
    max_retries: int = 3
    crash_cap: int = 3
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.backoff, Exponential | Fixed | Schedule | Custom):
            raise InvalidArgumentError(
                f"backoff is {self.backoff!r}; use exponential(), fixed(), schedule() or custom()"
            )
        for name in ("max_retries", "crash_cap"):
            if not isinstance(getattr(self, name), int):
                raise InvalidArgumentError(
                    f"{name} is {getattr(self, name)!r}; it must be a whole number"
                )
        if self.max_retries < 0:
            raise InvalidArgumentError(f"max_retries is {self.max_retries}; it cannot be negative")
        if self.crash_cap < 1:
            raise InvalidArgumentError(f"crash_cap is {self.crash_cap}; it must be at least 1")
        if self.timeout is not None and not 0 < self.timeout <= MAX_DELAY:
            raise InvalidArgumentError(
                f"timeout is {self.timeout}; it must be positive and at most 10 years, or None"
            )

    def encode(self) -> str:
        return json.dumps(
            {
                "backoff": _encode_backoff(self.backoff),
                "max_retries": self.max_retries,
                "crash_cap": self.crash_cap,
                "timeout": self.timeout,
            },
            separators=(",", ":"),
        )

    @staticmethod
    def decode(text: str) -> Policy:
        return _decode(text)


def stored(backoff: Backoff) -> Exponential | Fixed | Schedule:
    """The part of a backoff that the row carries: what maintenance, without task code, goes by."""
    return backoff.otherwise if isinstance(backoff, Custom) else backoff


def _encode_backoff(backoff: Backoff) -> dict[str, Any]:
    match backoff:
        case Exponential(base=base, cap=cap, jitter=jitter):
            return {"kind": "exponential", "base": base, "cap": cap, "jitter": jitter}
        case Fixed(seconds=wait):
            return {"kind": "fixed", "seconds": wait}
        case Schedule(delays=delays, jitter=spread):
            return {"kind": "schedule", "delays": list(delays), "jitter": spread}
        case Custom(otherwise=otherwise):
            return _encode_backoff(otherwise)
        case _:
            assert_never(backoff)


@lru_cache(maxsize=256)  # a queue has a handful of policies and a million rows
def _decode(text: str) -> Policy:
    data = json.loads(text)
    return Policy(
        backoff=_decode_backoff(data["backoff"]),
        max_retries=data["max_retries"],
        crash_cap=data["crash_cap"],
        timeout=data["timeout"],
    )


def _decode_backoff(spec: dict[str, Any]) -> Backoff:
    match spec["kind"]:
        case "exponential":
            return exponential(spec["base"], spec["cap"], spec["jitter"])
        case "fixed":
            return fixed(spec["seconds"])
        case "schedule":
            return schedule(spec["delays"], spec["jitter"])
        case _:
            # A newer version's word. One job that is not understood must not stop its queue.
            return Exponential()
