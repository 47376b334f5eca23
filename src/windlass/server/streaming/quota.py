"""Room for streams and long polls: each holds a connection and memory for as long as it lasts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from windlass.server.problems import Refusal

SOON = "5"  # seconds; nobody knows when a stream will end


class Room:
    """So many in this process, and so many of one key, however its holders came in."""

    def __init__(self, in_all: int, per_key: int) -> None:
        self._in_all = in_all
        self._per_key = per_key
        self._of: Counter[str | None] = Counter()
        self.taken = 0  # how many there are

    def check(self, key_id: str | None) -> None:
        """Raises a refusal if there is no room for one more; without a key, all share all of it."""
        if key_id is not None and self._of[key_id] >= self._per_key:
            raise _full(
                f"the key {key_id} has {self._per_key:,} streams open (requests that wait count as "
                "such), which is its limit"
            )
        if self.taken >= self._in_all:
            raise _full(
                f"{self._in_all:,} streams are open (requests that wait count as such), "
                "which is the limit of this server"
            )

    @contextlib.contextmanager
    def place(self, key_id: str | None) -> Iterator[None]:
        """In the block there is one more."""
        self._of[key_id] += 1
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._of[key_id] -= 1
            if not self._of[key_id]:
                del self._of[key_id]


def _full(detail: str) -> Refusal:
    return Refusal("too_many_streams", detail, {"Retry-After": SOON})
