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
_WIDTH = 10  # bytes


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
        self._entropy: Iterator[int] = iter(())
        self._milliseconds = 0
        self._counter = 0

    def __call__(self) -> UUID:
        now = time.time_ns() // 1_000_000
        with self._lock:
            entropy = next(self._entropy, None)
            if entropy is None:
                self._entropy = _numbers(os.urandom(_WIDTH * 256))
                entropy = next(self._entropy)
            if now > self._milliseconds:
                self._milliseconds = now
                # The top bit stays clear, so that a millisecond has room to count up in.
                self._counter = entropy >> (80 - _COUNTER_BITS + 1)
            else:
                self._counter += 1 + (entropy & 0xFFFF_FFFF)
                if self._counter >> _COUNTER_BITS:
                    self._milliseconds += 1
                    self._counter = entropy >> (80 - _COUNTER_BITS + 1)
            milliseconds, counter = self._milliseconds, self._counter
        high = counter >> 62
        low = counter & ((1 << 62) - 1)
        return uuid_of((milliseconds << 80) | _VERSION_7 | (high << 64) | _VARIANT | low)


def _numbers(data: bytes) -> Iterator[int]:
    """80 random bits at a time: asking the system for each would cost as much as all the rest."""
    return (int.from_bytes(data[at : at + _WIDTH], "big") for at in range(0, len(data), _WIDTH))


_set_int = UUID.int.__set__  # type: ignore[attr-defined,misc]
_set_safe = UUID.is_safe.__set__  # type: ignore[attr-defined,misc]


def uuid_of(number: int) -> UUID:
    """A UUID from its 128 bits, without the constructor's questions: 0.3 µs instead of 1."""
    made = object.__new__(UUID)
    _set_int(made, number)
    _set_safe(made, SafeUUID.unknown)
    return made


uuid7 = Uuid7Source()
