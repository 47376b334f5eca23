"""What is counted, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from windlass.core.job.state import FINAL, State
from windlass.core.worker_presence import LiveWorker
from windlass.insights.queues import Queue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def exposition(
    queues: Sequence[Queue], workers: Sequence[LiveWorker], streams: int, followed: int
) -> str:
    parts = [
        *_of_queues(queues),
        _gauge(
            "windlass_worker_running",
            "Attempts that a live worker holds.",
            [({"worker": one.name}, one.running) for one in workers],
        ),
        _gauge(
            "windlass_worker_free",
            "Empty slots of a live worker.",
            [({"worker": one.name}, one.free) for one in workers],
        ),
        _gauge(
            "windlass_worker_deaf",
            "1 if a live worker has stopped claiming, though it has room.",
            [({"worker": one.name}, one.deaf) for one in workers],
        ),
        _gauge("windlass_streams", "Event streams that this process serves.", [({}, streams)]),
        _gauge("windlass_jobs_followed", "Jobs whose logs this process reads.", [({}, followed)]),
    ]
    return "".join(parts)


def _of_queues(queues: Sequence[Queue]) -> Iterator[str]:
    states = [state for state in State if state not in FINAL]
    yield _gauge(
        "windlass_jobs",
        "Jobs in a queue that have not ended, by state; counted up to 10000.",
        [
            ({"queue": one.name, "state": state.value}, one.counts.get(state, 0))
            for one in queues
            for state in states
        ],
    )
    yield _gauge(
        "windlass_queue_paused",
        "1 if a queue hands out no jobs.",
        [({"queue": one.name}, one.paused) for one in queues],
    )
    yield _gauge(
        "windlass_queue_oldest_seconds",
        "For how long the first job in line has been there.",
        [({"queue": one.name}, one.oldest_age or 0) for one in queues],
    )
    yield _gauge(
        "windlass_attempts_per_minute",
        "Attempts that ended so, per minute, of the last minutes.",
        [
            ({"queue": one.name, "outcome": outcome}, getattr(one.rates, outcome))
            for one in queues
            for outcome in ("succeeded", "failed", "retried", "canceled")
        ],
    )


def _gauge(name: str, help_: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels(labels)} {float(value):g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
