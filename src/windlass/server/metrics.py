"""Metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from windlass.core.job.state import FINAL, State
from windlass.core.worker_presence import LiveWorker
from windlass.insights.queue_overview import Queue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def exposition(
    queues: Sequence[Queue], workers: Sequence[LiveWorker], open_streams: int, followed_jobs: int
) -> str:
    families = [
        *_queue_metrics(queues),
        _gauge(
            "windlass_worker_running_jobs",
            "Jobs that a worker is running.",
            [({"worker": worker.name}, worker.running) for worker in workers],
        ),
        _gauge(
            "windlass_worker_free_slots",
            "Free slots of a running worker.",
            [({"worker": worker.name}, worker.free) for worker in workers],
        ),
        _gauge(
            "windlass_worker_unresponsive",
            "1 if a running worker has free slots but has stopped claiming jobs.",
            [({"worker": worker.name}, worker.unresponsive) for worker in workers],
        ),
        _gauge(
            "windlass_event_streams", "Open event streams of this process.", [({}, open_streams)]
        ),
        _gauge(
            "windlass_followed_jobs",
            "Jobs whose event logs this process is following.",
            [({}, followed_jobs)],
        ),
    ]
    return "".join(families)


def _queue_metrics(queues: Sequence[Queue]) -> Iterator[str]:
    states = [state for state in State if state not in FINAL]
    yield _gauge(
        "windlass_jobs",
        "Unfinished jobs by queue and state; counted up to 10000.",
        [
            ({"queue": queue.name, "state": state.value}, queue.counts.get(state, 0))
            for queue in queues
            for state in states
        ],
    )
    yield _gauge(
        "windlass_queue_paused",
        "1 if the queue is paused.",
        [({"queue": queue.name}, queue.paused) for queue in queues],
    )
    yield _gauge(
        "windlass_queue_oldest_job_age_seconds",
        "Queue wait of the oldest queued job.",
        [({"queue": queue.name}, queue.oldest_age or 0) for queue in queues],
    )
    yield _gauge(
        "windlass_attempts_per_minute",
        "Attempts per minute by queue and outcome, averaged over the last minutes.",
        [
            ({"queue": queue.name, "outcome": outcome}, getattr(queue.rates, outcome))
            for queue in queues
            for outcome in ("succeeded", "failed", "retried", "canceled")
        ],
    )


def _gauge(name: str, help_: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
    lines += [f"{name}{_labels(labels)} {float(value):g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
