"""A bug that can be planted in this process, and the test that must catch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from httpx import TimeoutException


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A function that plants a bug in this process permanently: call it in a separate process.

    Its test must fail by an assertion, or by the error `raises`. With `waits`, the test must wait
    for something that never happens.
    """

    plant: Callable[[], None]
    test: str
    raises: type[BaseException] = AssertionError
    waits: bool = False

    def __call__(self) -> None:
        self.plant()

    @property
    def times_out(self) -> bool:
        """Whether its test ends by a timeout."""
        return self.waits or issubclass(self.raises, TimeoutException)

    @property
    def name(self) -> str:
        return self.plant.__name__

    @property
    def sentence(self) -> str:
        return (self.plant.__doc__ or "").strip()


def caught_by(
    test: str, *, raises: type[BaseException] = AssertionError, waits: bool = False
) -> Callable[[Callable[[], None]], PlantedBug]:
    """Mark a function that plants a bug; `test` is the node id of the test that catches it."""
    return lambda plant: PlantedBug(plant, test, raises, waits)


def swap(owner: object, name: str, broken: object) -> None:
    """Replace an existing attribute by a broken one."""
    getattr(owner, name)
    setattr(owner, name, broken)


def planted_bugs_in(*modules: ModuleType) -> tuple[PlantedBug, ...]:
    values = [value for module in modules for value in vars(module).values()]
    return tuple(value for value in values if isinstance(value, PlantedBug))
