"""Retry policies and backoffs, as data stored with the job.

The policy is in the job's row, so that a rescue needs no task code. Delays are in seconds; the
store converts them to instants by its clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, assert_never

from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import InvalidArgumentError

Random = Callable[[], float]  # uniform in [0, 1)
_MAX_DOUBLINGS = 62
MAX_DELAY = 10 * 365 * 86_400.0


def _not_negative(what: str, value: float) -> None:
    if not 0 <= value <= MAX_DELAY:
        raise InvalidArgumentError(f"{what} is {value!r}; it must be between 0 and 10 years")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Delay of random(0, min(base · 2^n, cap)); without jitter, the bound itself."""

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
    """The same delay before each retry."""

    seconds: float = 1.0

    def __post_init__(self) -> None:
        _not_negative("the delay", self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """One delay per retry; the last one repeats. Each varies by ± jitter."""

    delays: tuple[float, ...]
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not self.delays:
            raise InvalidArgumentError("delays() needs at least one delay")
        for delay in self.delays:
            _not_negative("a delay", delay)
        if not 0 <= self.jitter <= 1:
            raise InvalidArgumentError(f"jitter is {self.jitter!r}; it must be between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """Delay by a user function, called by the worker; a rescue uses `fallback`."""

    function: Callable[[int], float] = field(compare=False)
    fallback: Exponential | Fixed | Delays = Exponential()


Backoff: TypeAlias = Exponential | Fixed | Delays | Custom


def exponential(
    base: Duration = 0.5, cap: Duration = 30.0, jitter: Literal["full", "none"] = "full"
) -> Exponential:
    """Double the delay at each retry, up to `cap`, with full jitter by default."""
    return Exponential(base=to_seconds(base, "base"), cap=to_seconds(cap, "cap"), jitter=jitter)


def fixed(delay: Duration = 1.0) -> Fixed:
    """Wait the same time before each retry."""
    return Fixed(seconds=to_seconds(delay, "the delay"))


def delays(values: Sequence[Duration], jitter: float = 0.2) -> Delays:
    """Wait one of `values` before each retry; the last one repeats. Each varies by ± jitter."""
    return Delays(delays=tuple(to_seconds(delay, "a delay") for delay in values), jitter=jitter)


def custom(
    function: Callable[[int], float], fallback: Exponential | Fixed | Delays | None = None
) -> Custom:
    """Wait the seconds that `function` returns for the number of the retry, 0 for the first."""
    return Custom(function=function, fallback=fallback or Exponential())


def backoff_delay(backoff: Backoff, n: int, random: Random) -> float:
    """Return the seconds before retry number n, counted from 0."""
    match backoff:
        case Exponential(base=base, cap=cap, jitter=jitter):
            bound = min(base * 2.0 ** min(n, _MAX_DOUBLINGS), cap)
            return bound * random() if jitter == "full" else bound
        case Fixed(seconds=wait):
            return wait
        case Delays(delays=delays, jitter=jitter):
            return delays[min(n, len(delays) - 1)] * (1 + jitter * (2 * random() - 1))
        case Custom(function=function):
            chosen = float(function(n))
            if chosen != chosen:  # noqa: PLR0124 - NaN: use the stored backoff
                return backoff_delay(backoff.fallback, n, random)
            return min(max(chosen, 0.0), MAX_DELAY)
        case _:
            assert_never(backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often a job is attempted, and how long an attempt may take."""

    backoff: Backoff = Exponential()
    max_retries: int = 3
    crash_cap: int = 3
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.backoff, Exponential | Fixed | Delays | Custom):
            raise InvalidArgumentError(
                f"backoff is {self.backoff!r}; use exponential(), fixed(), delays() or custom()"
            )
        for name in ("max_retries", "crash_cap"):
            if not isinstance(getattr(self, name), int):
                raise InvalidArgumentError(
                    f"{name} is {getattr(self, name)!r}; it must be an integer"
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


def storable_backoff(backoff: Backoff) -> Exponential | Fixed | Delays:
    """Return the backoff that the row stores. Maintenance uses it, without task code."""
    return backoff.fallback if isinstance(backoff, Custom) else backoff


def _encode_backoff(backoff: Backoff) -> dict[str, Any]:
    match backoff:
        case Exponential(base=base, cap=cap, jitter=jitter):
            return {"kind": "exponential", "base": base, "cap": cap, "jitter": jitter}
        case Fixed(seconds=wait):
            return {"kind": "fixed", "seconds": wait}
        case Delays(delays=delays, jitter=spread):
            return {"kind": "delays", "delays": list(delays), "jitter": spread}
        case Custom(fallback=fallback):
            return _encode_backoff(fallback)
        case _:
            assert_never(backoff)


@lru_cache(maxsize=256)  # a million rows share a few policies
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
        case "delays":
            return delays(spec["delays"], spec["jitter"])
        case _:
            # Written by a newer version. One unknown backoff must not stop the queue.
            return Exponential()
