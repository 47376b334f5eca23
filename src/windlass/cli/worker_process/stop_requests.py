"""Requests to stop a worker: from signals, or through the pipe of a supervisor."""

from __future__ import annotations

from enum import Enum, auto
from queue import SimpleQueue
from typing import TypeAlias

from windlass.worker.supervised_process import watch_supervisor


class StopRequest(Enum):
    NEXT = auto()  # one step further
    FINISH = auto()  # the first step, also if repeated
    FORCE = auto()  # the second step
    DONE = auto()  # the worker has ended


StopRequests: TypeAlias = SimpleQueue[StopRequest]
"""`put` is safe from any thread and from signal handlers."""


def supervisor_requests(supervised: str) -> StopRequests:
    """Collect stop requests of the supervisor; the argument is its --supervised option."""
    requests: StopRequests = SimpleQueue()
    pipe = int(supervised.partition(":")[0])
    watch_supervisor(pipe, lambda: requests.put(StopRequest.FORCE))
    return requests
