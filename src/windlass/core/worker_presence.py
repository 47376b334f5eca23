"""A worker as others see it: the record that it keeps of itself while it lives.

That it lives does not say that it asks for work. One that lives, has room, and has had no answer to
a claim for a while is deaf: its jobs run on, but it takes no others, whatever waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from windlass.core.clock import SECOND, Instant

WORKER = "worker"  # the kind of these records; the key is the worker's name
DEAF_POLLS = 20  # so many polls without an answer, and no less than
DEAF_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """`queues` maps each to its slots. `last_claim_at` is when a claim of it was last answered.

    `seen_at` is when it last wrote this; instants are the store's. `free` counts its empty slots,
    and `room_since` tells since when it has had one. It asks for work every `poll` seconds.
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
    free: int = 0
    room_since: Instant | None = None
    poll: float = 1.0
    stopping: bool = False

    @property
    def silent_for(self) -> float:
        """Seconds, when it was last seen, for which it had room and no answer to a claim."""
        if self.room_since is None:
            return 0.0
        heard = max(self.room_since, self.last_claim_at or self.started_at)
        return max(0, self.seen_at - heard) / SECOND

    @property
    def deaf(self) -> bool:
        """Whether it lives and has stopped claiming, though it has room and was not told to."""
        return not self.stopping and self.silent_for > max(DEAF_POLLS * self.poll, DEAF_SECONDS)

    @property
    def takes_jobs(self) -> bool:
        return not (self.stopping or self.deaf)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> LiveWorker:
        """A newer worker may say more than this version understands."""
        facts = json.loads(data)
        known = {name: facts[name] for name in LiveWorker.__slots__ if name in facts}
        return LiveWorker(**{**known, "tasks": tuple(facts["tasks"])})


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether work is taken here; `problems` say why not, and what to do."""

    problems: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.problems


def deafness(workers: Iterable[LiveWorker]) -> tuple[str, ...]:
    """What is wrong with those that are deaf."""
    return tuple(
        f"worker {one.name} (pid {one.pid} on {one.host}) is deaf: it has {one.free} free slots, "
        f"and no claim of it was answered for {one.silent_for:.0f} s; restart it"
        for one in workers
        if one.deaf
    )


def store_problem(error: BaseException, timeout: float) -> str:
    """What is wrong with a store that could not be asked."""
    why = f"no answer within {timeout:g} s" if isinstance(error, TimeoutError) else str(error)
    return f"the store cannot be reached: {why}"
