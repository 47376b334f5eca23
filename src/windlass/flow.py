"""Flows: graphs of jobs that depend on each other, enqueued in one write.

    flow = app.flow()
    film = flow.add(fetch, url)
    parts = flow.each(transcode, [(film.result, size) for size in SIZES])
    flow.add(publish, parts.results)
    run = flow.enqueue()

`node.result` is a placeholder of the result of a job. For type checkers, it is the result itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

from windlass.client import Client
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import ConflictError, InvalidArgumentError
from windlass.core.ids import uuid7
from windlass.core.job.dependency import OnParent
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.new_job import NewJob
from windlass.core.job.result_reference import ResultReference, referenced_jobs
from windlass.core.job.state import State
from windlass.job import Job, JobApp
from windlass.options import EnqueueOptions
from windlass.task import Call, Task
from windlass.task_spec import TaskSpec

P = ParamSpec("P")
R = TypeVar("R")
FIRST_POLL = 0.25  # seconds between two polls of `wait`, at first
MAX_POLL = 2.0


class FlowApp(JobApp, Protocol):
    """The parts of an app that flows need."""

    def prepare(
        self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions
    ) -> NewJob: ...
    async def aenqueue_many(
        self, jobs: list[NewJob], *, atomic: bool = False
    ) -> list[Job[Any]]: ...
    def enqueue_many(self, jobs: list[NewJob], *, atomic: bool = False) -> list[Job[Any]]: ...


class Node(Generic[R]):
    """One job of a flow, before it is enqueued."""

    def __init__(self, call: Call[R]) -> None:
        self.id = call.options.id or uuid7()
        self.call = call
        self._after: list[UUID] = []
        self._on_parent = call.options.on_parent

    @property
    def result(self) -> R:
        """Return a placeholder of its result, to pass to another job of the flow."""
        return cast("R", ResultReference([self.id]))

    def after(self, *nodes: Node[Any] | Nodes[Any]) -> Node[R]:
        """Also wait for these nodes, without using their results."""
        for node in nodes:
            self._after += (
                [node.id] if isinstance(node, Node) else [member.id for member in node.nodes]
            )
        return self

    def run_always(self) -> Node[R]:
        """Run even if a parent did not succeed; the result of that parent is then None."""
        self._on_parent = OnParent.RUN
        return self

    def parents(self) -> tuple[UUID, ...]:
        """Return the ids of the jobs that it depends on."""
        named = referenced_jobs([*self.call.args, *self.call.kwargs.values()])
        return tuple(dict.fromkeys([*self.call.options.depends_on, *named, *self._after]))

    def options(self, flow_id: UUID) -> EnqueueOptions:
        return replace(
            self.call.options,
            id=self.id,
            depends_on=self.parents(),
            on_parent=self._on_parent,
            flow_id=flow_id,
        )


class Nodes(Generic[R]):
    """Several jobs of a flow that run in parallel."""

    def __init__(self, nodes: Sequence[Node[R]]) -> None:
        self.nodes = tuple(nodes)

    @property
    def results(self) -> list[R]:
        """Return a placeholder of the list of their results, in order."""
        return cast("list[R]", ResultReference([node.id for node in self.nodes], many=True))

    def __iter__(self) -> Any:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


class Flow:
    """Builder of a graph of jobs. Nothing is stored before `enqueue`."""

    def __init__(self, app: FlowApp) -> None:
        self._app = app
        self.id = uuid7()
        self._nodes: dict[UUID, Node[Any]] = {}

    def add(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add a job; it depends on the jobs whose results are among its arguments."""
        return self.put(task.call(*args, **kwargs))

    def put(self, call: Call[R]) -> Node[R]:
        """Add a job from a `Call`."""
        node = Node(call)
        self._nodes[node.id] = node
        return node

    def each(self, task: Task[P, R], items: Iterable[Any]) -> Nodes[R]:
        """Add a job per item: a tuple holds its arguments, a mapping its keyword arguments."""
        return Nodes([self.put(make_call(task, item)) for item in items])

    def __len__(self) -> int:
        return len(self._nodes)

    async def aenqueue(self) -> FlowRun:
        """Store all jobs in one write; if it raises, none is stored."""
        await self._app.aenqueue_many(self._new_jobs(), atomic=True)
        return FlowRun(self._app, self.id)

    def enqueue(self) -> FlowRun:
        self._app.enqueue_many(self._new_jobs(), atomic=True)
        return FlowRun(self._app, self.id)

    def _new_jobs(self) -> list[NewJob]:
        if not self._nodes:
            raise InvalidArgumentError("the flow has no jobs; add some before you enqueue it")
        return [self._new_job(node) for node in self._ordered()]

    def _new_job(self, node: Node[Any]) -> NewJob:
        call = node.call
        return self._app.prepare(call.spec, call.args, call.kwargs, node.options(self.id))

    def _ordered(self) -> list[Node[Any]]:
        """Sort the nodes, parents first. Raises an error that names the tasks of a cycle."""
        ordered: list[Node[Any]] = []
        open_ = {
            id_: {parent for parent in node.parents() if parent in self._nodes}
            for id_, node in self._nodes.items()
        }
        waiting: dict[UUID, list[UUID]] = {}
        for id_, parents in open_.items():
            for parent in parents:
                waiting.setdefault(parent, []).append(id_)
        ready = [id_ for id_, parents in open_.items() if not parents]
        for id_ in ready:  # grows during the loop
            ordered.append(self._nodes[id_])
            for child in waiting.get(id_, ()):
                open_[child].discard(id_)
                if not open_[child]:
                    ready.append(child)
        if len(ordered) < len(self._nodes):
            names = sorted({self._nodes[id_].call.spec.name for id_, left in open_.items() if left})
            raise InvalidArgumentError(
                f"the flow has a cycle: its jobs of {', '.join(names)} wait for each other"
            )
        return ordered


def make_call(task: Task[Any, R], item: Any) -> Call[R]:
    if isinstance(item, Call):
        return item
    if isinstance(item, Mapping):
        return task.call(**item)
    return task.call(*(item if isinstance(item, tuple) else (item,)))


class FlowRun:
    """An enqueued flow: read it, wait for it, cancel, retry or resume it as a whole."""

    def __init__(self, app: FlowApp, flow_id: UUID) -> None:
        self._app = app
        self.id = flow_id
        self.stats: FlowStats | None = None  # as last read

    @property
    def _client(self) -> Client:
        return self._app.client()

    async def arefresh(self) -> FlowStats:
        self.stats = await self._client.flow(self.id)
        return self.stats

    def refresh(self) -> FlowStats:
        """Read its state, its percent, and the number of its jobs by state."""
        return self._app.sync.call(self.arefresh())

    async def await_end(self, timeout: Duration | None = None) -> FlowStats:
        """Wait until all its jobs have ended. Raises TimeoutError after `timeout`."""
        limit = None if timeout is None else to_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                pause = FIRST_POLL
                while (stats := await self.arefresh()).ended_at is None:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, MAX_POLL)
        except TimeoutError:
            raise TimeoutError(f"flow {self.id} has not ended after {limit:g} s") from None
        return stats

    def wait(self, timeout: Duration | None = None) -> FlowStats:
        return self._app.sync.call(self.await_end(timeout))

    async def ajobs(self) -> AsyncIterator[Job[Any]]:
        """Yield its jobs, the newest first, including jobs that were retried."""
        async for row in self._client.flow_jobs(self.id):
            yield Job(self._app, row)

    def jobs(self) -> list[Job[Any]]:
        return self._app.sync.call(self._all())

    async def _all(self) -> list[Job[Any]]:
        return [job async for job in self.ajobs()]

    async def ajob(self, node: Node[R]) -> Job[R]:
        """Return the job of a node; if it was retried, its newest retry."""
        row = await self._client.get(node.id)
        while row.retried_as is not None:
            row = await self._client.get(row.retried_as)
        return Job(self._app, row)

    def job(self, node: Node[R]) -> Job[R]:
        return self._app.sync.call(self.ajob(node))

    async def acancel(self, *, by: str | None = None, reason: str | None = None) -> int:
        """Cancel all unfinished jobs; return their number."""
        return await self._client.cancel_flow(self.id, by=by, reason=reason)

    def cancel(self, *, by: str | None = None, reason: str | None = None) -> int:
        return self._app.sync.call(self.acancel(by=by, reason=reason))

    async def aretry(self) -> FlowRun:
        """Re-run failed and canceled jobs from the start, and the jobs that depend on them."""
        await self._client.retry_flow(self.id, resume=False)
        return self

    def retry(self) -> FlowRun:
        return self._app.sync.call(self.aretry())

    async def aresume(self) -> FlowRun:
        """Re-run failed and canceled jobs, each from its last completed step."""
        await self._client.retry_flow(self.id, resume=True)
        return self

    def resume(self) -> FlowRun:
        return self._app.sync.call(self.aresume())

    @property
    def state(self) -> State:
        """Return the state, as last read."""
        if self.stats is None:
            raise ConflictError("the state is not known yet; call refresh() first")
        return self.stats.state


class Group:
    """Calls that run in parallel; in a chain, the next link gets the list of their results."""

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        self.calls = tuple(calls)

    async def aenqueue(self) -> FlowRun:
        return await _flow_of([self]).aenqueue()

    def enqueue(self) -> FlowRun:
        return _flow_of([self]).enqueue()


class Chain:
    """Links that run in sequence; each gets the result of the previous one as first argument."""

    def __init__(self, links: Sequence[Call[Any] | Task[Any, Any] | Group]) -> None:
        self.links = tuple(links)

    async def aenqueue(self) -> FlowRun:
        return await _flow_of(self.links).aenqueue()

    def enqueue(self) -> FlowRun:
        return _flow_of(self.links).enqueue()


def chain(*links: Call[Any] | Task[Any, Any] | Group) -> Chain:
    """Create a chain: `chain(fetch.call(url), parse, group(a.call(), b.call())).enqueue()`."""
    if not links:
        raise InvalidArgumentError("a chain needs at least one link")
    return Chain(links)


def group(*calls: Call[Any]) -> Group:
    """Create a group of calls that run in parallel."""
    if not calls:
        raise InvalidArgumentError("a group needs at least one call")
    return Group(calls)


def _flow_of(links: Sequence[Call[Any] | Task[Any, Any] | Group]) -> Flow:
    calls = [link.calls if isinstance(link, Group) else (_as_call(link),) for link in links]
    flow = Flow(calls[0][0].app)
    previous: Node[Any] | Nodes[Any] | None = None
    for link, link_calls in zip(links, calls, strict=True):
        given: tuple[Any, ...] = ()
        if previous is not None:
            given = (previous.result if isinstance(previous, Node) else previous.results,)
        nodes = [flow.put(replace(call, args=(*given, *call.args))) for call in link_calls]
        previous = Nodes(nodes) if isinstance(link, Group) else nodes[0]
    return flow


def _as_call(link: Call[Any] | Task[Any, Any]) -> Call[Any]:
    return link if isinstance(link, Call) else link.call()
