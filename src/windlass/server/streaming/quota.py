"""Limits of open event streams and long polls: each holds a connection and memory."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from windlass.server.problem_details import ApiError

RETRY_AFTER = "5"  # seconds; the end of a stream cannot be predicted


class StreamQuota:
    """Counts streams of the process and of each key, with all its sessions and tickets."""

    def __init__(self, total: int, per_key: int) -> None:
        self._total = total
        self._per_key = per_key
        self._by_key: Counter[str | None] = Counter()
        self.in_use = 0

    def check(self, key_id: str | None) -> None:
        """Raise ApiError if the quota is used up. Requests without a key share the total."""
        if key_id is not None and self._by_key[key_id] >= self._per_key:
            raise _exceeded(
                f"key {key_id} reached the limit of {self._per_key:,} open streams per key "
                "(long polls count as streams)"
            )
        if self.in_use >= self._total:
            raise _exceeded(
                f"this server reached the limit of {self._total:,} open streams "
                "(long polls count as streams)"
            )

    @contextlib.contextmanager
    def hold(self, key_id: str | None) -> Iterator[None]:
        """Count one more stream during the block."""
        self._by_key[key_id] += 1
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1
            self._by_key[key_id] -= 1
            if not self._by_key[key_id]:
                del self._by_key[key_id]


def _exceeded(detail: str) -> ApiError:
    return ApiError("too_many_streams", detail, {"Retry-After": RETRY_AFTER})
