"""Registration of a batch task: its options and the arguments of one job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin
from uuid import UUID

from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.core.job.result_reference import RESULTS
from windlass.task_spec import CONTEXT, Signature, TaskSpec, source_location, type_hints
from windlass.worker.batch.batch import Batch, Item

MAX_BATCH_SIZE = 10_000  # jobs in one call


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
