"""Batch tasks: one call gets many jobs, and each of them is settled by itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, overload
from uuid import UUID

from windlass.core.errors import ConfigurationError, ConflictError, InvalidArgumentError
from windlass.core.job.result_reference import RESULTS
from windlass.task_spec import CONTEXT, Signature, TaskSpec, hints_of, where
from windlass.worker.context import Context

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    R = DefaultedTypeVar("R", default=None)
else:
    R = TypeVar("R")

A = TypeVar("A")
MOST = 10_000  # jobs in one call


class Item(Generic[A, R]):
    """One job of a batch: `args` is what it was enqueued with, `ctx` is its own context."""

    __slots__ = ("_tell", "args", "ctx", "error", "result", "settled")

    def __init__(
        self, args: A, ctx: Context, tell: Callable[[Item[Any, Any]], None] = lambda _: None
    ) -> None:
        self.args = args
        self.ctx = ctx
        self._tell = tell
        self.settled = False  # whether the task has said how it ended
        self.result: R | None = None
        self.error: BaseException | None = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            """`Item[Page]` is `Item[Page, None]`."""
            return super().__class_getitem__(given if isinstance(given, tuple) else (given, None))

    @property
    def cancelled(self) -> bool:
        """Whether this job was asked to stop: leave it out. The others go on."""
        return self.ctx.cancelled

    @overload
    def succeed(self: Item[A, None]) -> None: ...
    @overload
    def succeed(self, result: R) -> None: ...
    def succeed(self, result: Any = None) -> None:
        """It is done, with this result; stored at once, whatever becomes of the others."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """It ends as if its own task had raised this: a Snooze, RetryAfter or Cancel, too."""
        if not isinstance(error, BaseException):
            raise InvalidArgumentError(
                f"fail takes an exception, and got {error!r:.80}; write `item.fail(ValueError(…))`"
            )
        self._settle(None, error)

    def outcome(self) -> Any:
        """Its result, if it succeeded or nothing was said of it; raises what it failed of."""
        if self.error is not None:
            raise self.error
        return self.result

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.settled:
            raise ConflictError(f"job {self.ctx.job.id} of this batch is settled already")
        self.result, self.error, self.settled = result, error, True
        self._tell(self)


class Batch(Sequence[Item[A, R]]):
    """The jobs of one call, in the order in which they were claimed.

    Those that are not settled when the call returns have succeeded, without a result. If the call
    raises, they have failed of that, each with its own retries.
    """

    def __init__(self, items: Iterable[Item[A, R]]) -> None:
        self._items = tuple(items)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            """`Batch[Page]` is `Batch[Page, None]`."""
            return super().__class_getitem__(given if isinstance(given, tuple) else (given, None))

    @property
    def args(self) -> list[A]:
        """What each was enqueued with, in order."""
        return [item.args for item in self._items]

    @property
    def state(self) -> Any:
        """What the worker's lifespan yielded."""
        return self._items[0].ctx.state if self._items else None

    @property
    def cancelled(self) -> bool:
        """Whether all that are still to be settled were asked to stop: threads look at this."""
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
    """The arguments of one job: those of `one`, a class or a function."""

    def __init__(self, one: Callable[..., Any], name: str, result: Any) -> None:
        try:
            super().__init__(one, name, result=result)
        except (TypeError, ValueError) as error:  # int, or no callable at all
            raise ConfigurationError(
                f"args of task {name!r} is {one!r:.80}; name what one job takes: a dataclass, a "
                "model, or a function of the arguments"
            ) from error
        self._one = one
        if self.takes_context:
            raise ConfigurationError(
                f"args of task {name!r} begin with {CONTEXT!r}; each item of a batch has its own "
                "context, so name that argument otherwise"
            )

    def store(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parents: Sequence[UUID] = ()
    ) -> dict[str, Any]:
        stored = super().store(args, kwargs, parents)
        if RESULTS in stored:
            return stored  # what it is made of is not there yet
        try:
            self.make(stored)
        except Exception as error:
            raise InvalidArgumentError(f"task {self._name!r}: {error}") from error
        return stored

    def make(self, stored: Any) -> Any:
        """What stands in `item.args`."""
        return self._one(**self.restore(stored))


@dataclass(slots=True)
class BatchSpec(TaskSpec):
    """A task whose function takes a `Batch`; `args` makes what one job brings into it."""

    args: Callable[..., Any] = field(kw_only=True)
    size: int = field(kw_only=True)
    wait: float = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.options.executor == "process":
            raise ConfigurationError(
                f'task {self.name!r} has batch= and executor="process"; a child process runs one '
                "job at a time: leave one of them out"
            )
        if not 1 <= self.size <= MOST:
            raise ConfigurationError(
                f"batch of task {self.name!r} is {self.size!r}; it is from 1 to {MOST:,} jobs"
            )
        taken = list(inspect.signature(self.function).parameters)
        if len(taken) != 1 or taken[0] == CONTEXT:
            raise ConfigurationError(
                f"task {self.name!r} at {where(self.function)} is a batch task, so it takes one "
                "parameter, `batch: Batch[…]`; each item in it has a context, `item.ctx`"
            )
        hint = hints_of(self.function, self.name).get(taken[0], Any)
        self._take(_BatchSignature(self.args, self.name, _result_in(hint)))

    def make(self, stored: Any) -> Any:
        assert isinstance(self.signature, _BatchSignature)
        return self.signature.make(stored)


def _result_in(hint: Any) -> Any:
    """What stands for the result in `Batch[Page, int]`, or in a sequence of `Item[Page, int]`."""
    given = get_args(hint)
    if get_origin(hint) in {Batch, Item}:
        return given[1]
    return _result_in(given[0]) if len(given) == 1 else Any
