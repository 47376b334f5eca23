"""The argument of a batch task: a `Batch` of items. Each item is a job, settled separately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from windlass.core.errors import ConflictError, InvalidArgumentError
from windlass.worker.context import Context

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    R = DefaultedTypeVar("R", default=None)
else:
    R = TypeVar("R")

A = TypeVar("A")


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
        """Settle this job as succeeded, immediately and independent of the other jobs."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """Settle this job as if its task had raised the error (Snooze, RetryAfter, Cancel too)."""
        if not isinstance(error, BaseException):
            raise InvalidArgumentError(
                f"fail takes an exception, not {error!r:.80}; write `item.fail(ValueError(…))`"
            )
        self._settle(None, error)

    def outcome(self) -> Any:
        """Return the job's result, or None if it is not settled. Raise its error if it failed."""
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
