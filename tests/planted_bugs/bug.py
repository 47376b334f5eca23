"""A mistake that can be planted in this process, and the test of the suite that must catch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from httpx import TimeoutException


@dataclass(frozen=True, slots=True)
class Mistake:
    """Called, it spoils this process for good: plant it in one that is made for it.

    Its test fails by an assertion. `raises`: by this error instead. `waits`: what is spoiled is
    that something comes at all, so the test waits in vain.
    """

    plant: Callable[[], None]
    test: str
    raises: type[BaseException] = AssertionError
    waits: bool = False

    def __call__(self) -> None:
        self.plant()

    @property
    def times_out(self) -> bool:
        """Whether its test ends by waiting in vain, for as long as its patience lasts."""
        return self.waits or issubclass(self.raises, TimeoutException)

    @property
    def name(self) -> str:
        return self.plant.__name__

    @property
    def sentence(self) -> str:
        return (self.plant.__doc__ or "").strip()


def caught_by(
    test: str, *, raises: type[BaseException] = AssertionError, waits: bool = False
) -> Callable[[Callable[[], None]], Mistake]:
    """Say which test, by its full name, catches the mistake that this function plants."""
    return lambda plant: Mistake(plant, test, raises, waits)


def swap(owner: object, name: str, wrong: object) -> None:
    """Put something wrong in a place that must be there."""
    getattr(owner, name)
    setattr(owner, name, wrong)


def mistakes_in(*modules: ModuleType) -> tuple[Mistake, ...]:
    values = [value for module in modules for value in vars(module).values()]
    return tuple(value for value in values if isinstance(value, Mistake))
