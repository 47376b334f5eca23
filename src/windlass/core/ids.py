"""Job ids: UUIDv7, made by the client, rising within a process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from threading import Lock
from uuid import UUID, SafeUUID

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_COUNTER_BITS = 74  # rand_a and rand_b together
_LOW_BITS = 62  # rand_b
_LOW = (1 << _LOW_BITS) - 1


class Uuid7Source:
    """Makes UUIDv7 values that only rise, within a millisecond and when the clock steps back too.

    The 74 random bits work as a counter: fresh randomness for each new millisecond, a random step
    upward inside one. A forked child starts afresh, so that it cannot repeat its parent.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self._lock = Lock()
        self._steps = _steps()
        self._milliseconds = 0
        self._head = 0  # all of it but the counter
        self._counter = 0

    def __call__(self) -> UUID:
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._milliseconds:
                self._begin(now)
            else:
                self._counter += next(self._steps)
                if self._counter >> _COUNTER_BITS:
                    self._begin(self._milliseconds + 1)
            head, counter = self._head, self._counter
        return uuid_of(head | (counter >> _LOW_BITS << 64) | (counter & _LOW))

    def _begin(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds
        self._head = (milliseconds << 80) | _VERSION_7 | _VARIANT
        # The top bit stays clear, so that a millisecond has room to count up in.
        self._counter = int.from_bytes(os.urandom(10), "big") >> (80 - _COUNTER_BITS + 1)


def _steps() -> Iterator[int]:
    """1 to 2**32, many at a time: asking the system for each would cost as much as all the rest."""
    while True:
        for number in memoryview(os.urandom(4096)).cast("I"):
            yield number + 1


_UNKNOWN = SafeUUID.unknown
_set_int = UUID.int.__set__  # type: ignore[attr-defined,misc]
_set_safe = UUID.is_safe.__set__  # type: ignore[attr-defined,misc]


def uuid_of(number: int) -> UUID:
    """A UUID from its 128 bits, without the constructor's questions: 0.3 µs instead of 1."""
    made = object.__new__(UUID)
    _set_int(made, number)
    _set_safe(made, _UNKNOWN)
    return made


uuid7 = Uuid7Source()
