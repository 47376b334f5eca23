"""Batch tasks: one call gets many jobs, and each job is settled separately."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, overload
from uuid import UUID

from windlass.core.errors import ConfigurationError, ConflictError, InvalidArgumentError
from windlass.core.job.result_reference import RESULTS
from windlass.task_spec import CONTEXT, Signature, TaskSpec, source_location, type_hints
from windlass.worker.context import Context

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    R = DefaultedTypeVar("R", default=None)
else:
    R = TypeVar("R")

A = TypeVar("A")
MAX_BATCH_SIZE = 10_000  # jobs in one call


class Item(Generic[A, R]):
    """One job of a batch: `args` are its arguments, `ctx` is its own context."""

    __slots__ = ("_on_settled", "args", "ctx", "error", "result", "settled")

    def __init__(
        self, args: A, ctx: Context, on_settled: Callable[[Item[Any, Any]], None] = lambda _: None
    ) -> None:
        self.args = args
        self.ctx = ctx
        self._on_settled = on_settled
        self.settled = False  # whether the task has called `succeed` or `fail`
        self.result: R | None = None
        self.error: BaseException | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """`Item[Page]` is `Item[Page, None]`."""
            return super().__class_getitem__(types if isinstance(types, tuple) else (types, None))

    @property
    def cancelled(self) -> bool:
        """Whether this job must stop: skip it. The other jobs continue."""
        return self.ctx.cancelled

    @overload
    def succeed(self: Item[A, None]) -> None: ...
    @overload
    def succeed(self, result: R) -> None: ...
    def succeed(self, result: Any = None) -> None:
        """Settle this job as succeeded, at once and independent of the other jobs."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """Settle this job as if its own task had raised the error (also Snooze or RetryAfter)."""
        if not isinstance(error, BaseException):
            raise InvalidArgumentError(
                f"fail takes an exception, not {error!r:.80}; write `item.fail(ValueError(…))`"
            )
        self._settle(None, error)

    def outcome(self) -> Any:
        """Return its result, None if it is not settled; raise its error if it failed."""
        if self.error is not None:
            raise self.error
        return self.result

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.settled:
            raise ConflictError(f"job {self.ctx.job.id} of this batch is already settled")
        self.result, self.error, self.settled = result, error, True
        self._on_settled(self)


class Batch(Sequence[Item[A, R]]):
    """The jobs of one call, in the order in which they were claimed.

    Jobs that are not settled when the call returns succeed without a result. If the call raises,
    they fail with that error, each with its own retries.
    """

    def __init__(self, items: Iterable[Item[A, R]]) -> None:
        self._items = tuple(items)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            """`Batch[Page]` is `Batch[Page, None]`."""
            return super().__class_getitem__(types if isinstance(types, tuple) else (types, None))

    @property
    def args(self) -> list[A]:
        """The arguments of each job, in order."""
        return [item.args for item in self._items]

    @property
    def state(self) -> Any:
        """The state that the worker's lifespan yielded."""
        return self._items[0].ctx.state if self._items else None

    @property
    def cancelled(self) -> bool:
        """Whether all unsettled jobs must stop; threads poll this."""
        return all(item.settled or item.cancelled for item in self._items)

    @overload
    def __getitem__(self, index: int) -> Item[A, R]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item[A, R]]: ...
    def __getitem__(self, index: int | slice) -> Item[A, R] | Sequence[Item[A, R]]:
        return self._items[index]

    def __iter__(self) -> Iterator[Item[A, R]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class _BatchSignature(Signature):
    """The arguments of one job: the parameters of `factory`, a class or a function."""

    def __init__(self, factory: Callable[..., Any], name: str, result: Any) -> None:
        try:
            super().__init__(factory, name, result=result)
        except (TypeError, ValueError) as error:  # int, or no callable at all
            raise ConfigurationError(
                f"args of task {name!r} is {factory!r:.80}; it must be a dataclass, a model or a "
                "function whose parameters are the arguments of one job"
            ) from error
        self._factory = factory
        if self.takes_context:
            raise ConfigurationError(
                f"args of task {name!r} start with {CONTEXT!r}; each item of a batch has its own "
                "context, so rename that argument"
            )

    def store(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parents: Sequence[UUID] = ()
    ) -> dict[str, Any]:
        stored = super().store(args, kwargs, parents)
        if RESULTS in stored:
            return stored  # some values are results that do not exist yet
        try:
            self.make(stored)
        except Exception as error:
            raise InvalidArgumentError(f"task {self._name!r}: {error}") from error
        return stored

    def make(self, stored: Any) -> Any:
        """Build the value of `item.args`."""
        return self._factory(**self.restore(stored))


@dataclass(slots=True)
class BatchSpec(TaskSpec):
    """A task whose function takes a `Batch`; `args` builds the `item.args` of one job."""

    args: Callable[..., Any] = field(kw_only=True)
    size: int = field(kw_only=True)
    wait: float = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.options.executor == "process":
            raise ConfigurationError(
                f'task {self.name!r} has batch= and executor="process"; a child process runs one '
                "job at a time: remove one of the two options"
            )
        if not 1 <= self.size <= MAX_BATCH_SIZE:
            raise ConfigurationError(
                f"batch of task {self.name!r} is {self.size!r}; "
                f"it must be from 1 to {MAX_BATCH_SIZE:,} jobs"
            )
        parameters = list(inspect.signature(self.function).parameters)
        if len(parameters) != 1 or parameters[0] == CONTEXT:
            raise ConfigurationError(
                f"task {self.name!r} at {source_location(self.function)} is a batch task and must "
                "take one parameter, `batch: Batch[…]`; each item has a context, `item.ctx`"
            )
        hint = type_hints(self.function, self.name).get(parameters[0], Any)
        self._set_signature(_BatchSignature(self.args, self.name, _result_type(hint)))

    def make(self, stored: Any) -> Any:
        assert isinstance(self.signature, _BatchSignature)
        return self.signature.make(stored)


def _result_type(hint: Any) -> Any:
    """Return the result type in `Batch[Page, int]` or in a sequence of `Item[Page, int]`."""
    arguments = get_args(hint)
    if get_origin(hint) in {Batch, Item}:
        return arguments[1]
    return _result_type(arguments[0]) if len(arguments) == 1 else Any
