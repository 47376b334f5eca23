"""Options of tasks and jobs: their values, their parsers, and the job of a call with options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, TypeAlias
from uuid import UUID

from windlass.core.admission.limit import Limit
from windlass.core.clock import from_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.core.ids import uuid7
from windlass.core.job.dependency import OnParent
from windlass.core.job.new_job import DEFAULT_POLICY, DEFAULT_QUEUE, NewJob
from windlass.core.job.progress import StageMap
from windlass.core.job.retry_policy import Backoff, Exponential, Policy
from windlass.task_spec import TaskOptions, TaskSpec

_Errors: TypeAlias = type[BaseException] | Iterable[type[BaseException]]
Stages: TypeAlias = StageMap | Mapping[str, tuple[str, tuple[int, int] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Options of one job. Durations are in seconds.

    id: id of the job, a UUID; repeating an enqueue with the same id is harmless
    queue: overrides the queue of the task
    priority: overrides the priority of the task; higher first
    delay: minimum time before the job runs
    run_at: earliest time at which the job runs; must have a time zone
    hold: store the job without queueing it, until `job.submit()`
    expires_in: fail the job with the code `expired` if it has not started after this time
    request_id: idempotency key: a repeat returns the same job; other arguments are a conflict
    unique_key: at most one active job of the task has this key; a second enqueue returns it
    debounce: with a unique key: replace a waiting job by the new one
    owner: owner of the job; request ids and unique keys are scoped by owner
    team: team of the job
    tags: tags for filtering
    headers: metadata such as trace context; child jobs inherit `correlation-id`
    depends_on: jobs, or their ids, that must succeed before this one runs
    on_parent: what happens if one of them did not succeed: `cancel`, `fail` or `run`
    flow_id: flow that the job belongs to; set by `app.flow()`
    limit_key: overrides the limit key of the task, used by limits per key and fairness
    """

    id: UUID | None = None
    queue: str | None = None
    priority: int | None = None
    delay: float = 0.0
    run_at: datetime | None = None
    hold: bool = False
    expires_in: float | None = None
    request_id: str | None = None
    unique_key: str | None = None
    debounce: bool = False
    owner: str = ""
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    depends_on: tuple[UUID, ...] = ()
    on_parent: OnParent = OnParent.CANCEL
    flow_id: UUID | None = None
    limit_key: str | None = None


NO_OPTIONS = EnqueueOptions()
# Options that are fields of the job as they are; `new_job` converts the others.
_COPIED = tuple(
    name
    for name in EnqueueOptions.__slots__
    if name not in {"id", "queue", "priority", "run_at", "limit_key"}
)
_copied = attrgetter(*_COPIED)


def new_job(
    spec: TaskSpec,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: EnqueueOptions,
    codec: Codec,
) -> NewJob:
    """Return the job of a call of a task; validates the arguments."""
    stored = spec.signature.store(args, kwargs, options.depends_on)
    payload = codec.encode(stored, Purpose.PAYLOAD)
    limit_key = options.limit_key
    if limit_key is None and spec.key is not None:
        limit_key = spec.limit_key_of(args, kwargs)
    settings = spec.options
    if options is NO_OPTIONS:  # a fast path for bulk enqueues
        return NewJob(
            id=uuid7(),
            task=spec.name,
            queue=settings.queue,
            payload=payload,
            priority=settings.priority,
            policy=settings.policy,
            lease=settings.lease,
            limit_key=limit_key,
        )
    keyed = options.request_id is not None or options.id is not None
    return NewJob(
        id=options.id or uuid7(),
        task=spec.name,
        queue=options.queue or settings.queue,
        payload=payload,
        priority=settings.priority if options.priority is None else options.priority,
        run_at=from_datetime(options.run_at) if options.run_at else None,
        policy=settings.policy,
        lease=settings.lease,
        digest=codec.digest([spec.name, stored]) if keyed else None,
        limit_key=limit_key,
        **dict(zip(_COPIED, _copied(options), strict=True)),
    )


def task_options(
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    max_retries: int = 3,
    backoff: Backoff | None = None,
    crash_cap: int = 3,
    timeout: Duration | None = None,
    lease: Duration | None = None,
    retry_on: _Errors = (),
    terminal_on: _Errors = (),
    stages: Stages | None = None,
    executor: Literal["process"] | None = None,
    limit: Limit | None = None,
    limit_key: str | Callable[..., Any] | None = None,
    key_limit: Limit | None = None,
) -> TaskOptions:
    """Return the options of a task, from the arguments of `@app.task(…)`.

    queue: queue of its jobs
    priority: higher first; within a priority, first in, first out
    max_retries: maximum number of retries after the first attempt
    backoff: delay before a retry; None is `exponential()`
    crash_cap: a job fails after its worker died this many times
    timeout: maximum run time of an attempt; None: no timeout
    lease: time after which the job of a dead worker is rescued; None is 30 s
    retry_on: retry only these errors; empty: all errors that are not terminal
    terminal_on: never retry these errors
    stages: {stage: (phase, (low, high))}; None: those of the app
    executor: "process" runs it in a child process: for CPU-bound work, or killable code
    limit: concurrency or rate limit of its jobs: `Limit(concurrency=5)`
    limit_key: name of an argument, or a function of arguments: for fairness and limits per key
    key_limit: like `limit`, for the jobs of each limit key
    """
    if executor not in {None, "process"}:
        raise ConfigurationError(
            f'executor is {executor!r}; it must be "process" or None (async functions on the '
            "worker's event loop, others on a thread)"
        )
    _check_limits(limit, limit_key, key_limit)
    policy = Policy(
        backoff=backoff or Exponential(),
        max_retries=max_retries,
        crash_cap=crash_cap,
        timeout=None if timeout is None else to_seconds(timeout, "timeout"),
    )
    return TaskOptions(
        queue=queue,
        priority=priority,
        # Stores compare the default policy by identity.
        policy=DEFAULT_POLICY if policy == DEFAULT_POLICY else policy,
        lease=None if lease is None else to_seconds(lease, "lease"),
        retry_on=_errors("retry_on", retry_on),
        terminal_on=_errors("terminal_on", terminal_on),
        stages=None if stages is None else stage_map(stages),
        executor=executor,
        limit=limit,
        limit_key=limit_key,
        key_limit=key_limit,
    )


def _check_limits(limit: Any, limit_key: Any, key_limit: Any) -> None:
    for name, given in (("limit", limit), ("key_limit", key_limit)):
        if not isinstance(given, Limit | None):
            raise ConfigurationError(
                f'{name} is {given!r:.80}; write {name}=Limit(concurrency=5, rate="100/1m")'
            )
    if not (limit_key is None or callable(limit_key) or (isinstance(limit_key, str) and limit_key)):
        raise ConfigurationError(
            f"limit_key is {limit_key!r:.80}; it must be the name of an argument of the task, "
            "or a function of arguments: limit_key=lambda tenant: tenant.id"
        )
    if key_limit is not None and limit_key is None:
        raise ConfigurationError(
            "key_limit needs a limit_key; name an argument: "
            'limit_key="tenant" (or lambda: None, if each enqueue sets limit_key)'
        )


def stage_map(stages: Stages) -> StageMap:
    """Return a StageMap, also from a table of {stage: (phase, (low, high))}."""
    if isinstance(stages, StageMap):
        return stages
    try:
        return StageMap.of(stages)
    except (TypeError, AttributeError):
        raise ConfigurationError(
            f"stages is {stages!r:.80}; write {{stage: (phase, (low, high))}}, "
            "or (phase, None) for a stage that does not change the percent"
        ) from None


def job_ids(given: Any) -> tuple[UUID, ...]:
    """Return the ids of jobs, given as jobs or ids."""
    jobs = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    ids: tuple[Any, ...] = tuple(getattr(job, "id", job) for job in jobs)
    invalid = [job_id for job_id in ids if not isinstance(job_id, UUID)]
    if invalid:
        raise InvalidArgumentError(
            f"depends_on has {invalid[0]!r:.80}; it must contain jobs or job ids"
        )
    return ids


def parse_on_parent(given: Any) -> OnParent:
    """Return an `on_parent` policy from text."""
    try:
        return OnParent(given)
    except ValueError:
        raise InvalidArgumentError(
            f"on_parent is {given!r:.80}; it must be one of {', '.join(OnParent)}"
        ) from None


def batch_options(size: Any, args: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the options of a batch task from `options`; None for other tasks."""
    wait = options.pop("wait", None)
    if size is None and args is None and wait is None:
        return None
    if not isinstance(size, int) or not callable(args):
        raise ConfigurationError(
            f"batch is {size!r} and args is {args!r:.80}; a batch task needs the maximum number of "
            "jobs per call and the type of their arguments: `@app.task(batch=100, args=Page)`"
        )
    return {"size": size, "args": args, "wait": to_seconds(0 if wait is None else wait, "wait")}


def parse_names(given: Any) -> tuple[str, ...]:
    """Return the aliases of a task, given as one name or several."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(f"aliases is {given!r}; it must be former names of the task")
    return names


def _errors(what: str, given: _Errors) -> tuple[type[BaseException], ...]:
    try:
        kinds = (given,) if isinstance(given, type) else tuple(given)
        isinstance(Exception(), kinds)
    except TypeError:
        raise ConfigurationError(f"{what} is {given!r}; it must be exception classes") from None
    return kinds


def check_known_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error that names unknown options."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigurationError(
            f"unknown options: {', '.join(unknown)}; valid are {', '.join(known)}"
        )
