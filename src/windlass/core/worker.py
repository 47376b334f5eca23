"""A worker as others see it: the record that it keeps of itself while it lives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from windlass.core.clock import Instant

WORKER = "worker"  # the kind of these records; the key is the worker's name


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """`queues` maps each to its slots. `last_claim_at` is when it last asked for work.

    `seen_at` is when it last wrote this; instants are the store's.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: Mapping[str, int]
    tasks: tuple[str, ...]
    started_at: Instant
    seen_at: Instant
    last_claim_at: Instant | None = None
    running: int = 0

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> LiveWorker:
        """A newer worker may say more than this version understands."""
        facts = json.loads(data)
        known = {name: facts[name] for name in LiveWorker.__slots__ if name in facts}
        return LiveWorker(**{**known, "tasks": tuple(facts["tasks"])})
