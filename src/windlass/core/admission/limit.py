"""Concurrency and rate limits, and the records that store them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windlass.core.clock import SECOND
from windlass.core.duration import parse_rate
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.retry_policy import MAX_DELAY

LIMIT = "limit"  # record kind of limits; the record key is the name of the limit
KEY, TASK, QUEUE = "key:", "task:", "queue:"  # prefixes of limit names
GATE_ORDER = (KEY, TASK, QUEUE)  # a job is checked at its gates in this order
MAX_LIMIT = 100_000  # concurrent jobs, or starts in a period: each is a row at its gate
MIN_PERIOD = 0.001  # seconds


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """`Limit(concurrency=5)`, `Limit(rate="100/1m")`, or both.

    A rate limits the starts in any window of the period: "10/s", "100/1m". `starts=100, period=60`
    means the same.

    concurrency: maximum number of jobs that run at the same time
    starts: maximum number of starts in any window of `period`
    period: length of the window, in seconds
    """

    concurrency: int | None = None
    starts: int | None = None
    period: float | None = None

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        starts: int | None = None,
        period: float | None = None,
    ) -> None:
        if rate is not None:
            if starts is not None or period is not None:
                raise InvalidArgumentError(
                    "a limit has one rate: give rate=, or starts= and period="
                )
            starts, period = parse_rate(rate)
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "period", period)
        self._check()

    def _check(self) -> None:
        if self.concurrency is None and self.starts is None:
            raise InvalidArgumentError(
                'a limit needs concurrency= or rate=: Limit(concurrency=5, rate="100/1m")'
            )
        if (self.starts is None) != (self.period is None):
            raise InvalidArgumentError("a rate needs both starts= and period= (seconds)")
        for name in ("concurrency", "starts"):
            number = getattr(self, name)
            if number is not None and not (type(number) is int and 0 < number <= MAX_LIMIT):
                raise InvalidArgumentError(
                    f"{name} is {number!r}; it must be an integer from 1 to {MAX_LIMIT:,}"
                )
        if self.period is not None and not MIN_PERIOD <= self.period <= MAX_DELAY:
            raise InvalidArgumentError(
                f"period is {self.period} s; it must be between 1 ms and 10 years"
            )

    @property
    def length(self) -> int:
        """Return the period in microseconds."""
        return round((self.period or 0) * SECOND)

    def encode(self) -> dict[str, Any]:
        return {"concurrency": self.concurrency, "starts": self.starts, "period": self.period}

    def __str__(self) -> str:
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.concurrency:,} at once")
        if self.starts is not None:
            parts.append(f"{self.starts:,} starts in {self.period:g} s")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSetting:
    """Value of a limit record: the limit declared in code, and the override set at run time."""

    declared: Limit | None = None
    override: Limit | None = None

    @property
    def limit(self) -> Limit | None:
        """Return the limit in effect."""
        return self.override or self.declared

    def encode(self) -> bytes:
        """Encode as JSON. The fields of the limit in effect come first: SQL reads them directly."""
        limit = self.limit
        assert limit is not None, "a setting without a limit is deleted, not stored"
        fields = limit.encode() | {
            "declared": self.declared and self.declared.encode(),
            "override": self.override and self.override.encode(),
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> LimitSetting:
        fields = json.loads(data)
        return LimitSetting(
            declared=_limit(fields["declared"]), override=_limit(fields["override"])
        )


def _limit(fields: dict[str, Any] | None) -> Limit | None:
    if fields is None:
        return None
    return Limit(**{name: fields[name] for name in ("concurrency", "starts", "period")})


@lru_cache(maxsize=256)
def decode_limit(data: bytes | None) -> Limit | None:
    """Return the limit in effect of an encoded `LimitSetting`, if any."""
    return None if data is None else LimitSetting.decode(data).limit


def check_limit_name(name: str) -> None:
    kind = next((kind for kind in GATE_ORDER if name.startswith(kind)), None)
    if kind is None or name == kind:
        raise InvalidArgumentError(
            f"{name!r} is not the name of a limit; write queue:NAME, task:NAME, or "
            "key:NAME (each key of a task)"
        )
