"""A loop that fails and fails again says so once."""

from __future__ import annotations

import pytest

from windlass.core.errors import StoreUnavailableError
from windlass.worker.trouble import AGAIN, Trouble


class Hours:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def test_the_same_thing_is_said_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hours()
    trouble = Trouble("claiming", clock=clock)
    for clock.time in (0.0, 0.25, 0.5, 3.0):
        trouble.met(StoreUnavailableError("away"))
    trouble.met(StoreUnavailableError("starting"))
    trouble.met(StoreUnavailableError("away"))
    clock.time = 4.0
    trouble.over()
    trouble.over()

    assert caplog.messages == [
        "claiming failed, trying again: away",
        "claiming failed, trying again: starting",
        "claiming works again, after 4.0 s",
    ]


def test_what_lasts_is_said_again_after_a_while_and_new_trouble_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Hours()
    trouble = Trouble("claiming", clock=clock)
    for clock.time in (0.0, AGAIN - 1, AGAIN, AGAIN + 1):
        trouble.met(StoreUnavailableError("away"), "claiming much")
    assert caplog.messages == ["claiming much failed, trying again: away"] * 2
    trouble.over()
    caplog.clear()
    trouble.met(StoreUnavailableError("away"))
    assert len(caplog.messages) == 1
