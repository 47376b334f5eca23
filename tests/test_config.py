"""Settings: durations in words, and where the jobs are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windlass.config import DEFAULT_URL, Duration, seconds, store_url
from windlass.core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0.0),
        (5, 5.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
        ("250ms", 0.25),
        ("30s", 30.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 2D ", 172_800.0),
        ("1w", 604_800.0),
    ],
)
def test_a_duration_is_read(given: Duration, expected: float) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize("given", ["", "5", "five", "5 parsecs", "1h30", "-5s", "5s!", "s"])
def test_words_that_are_no_duration_are_refused_with_examples(given: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r'delay is .*; write .*"1h30m"') as caught:
        seconds(given, "delay")
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize("given", [-1, -0.001, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_duration_that_cannot_pass_is_refused(given: Duration) -> None:
    with pytest.raises(InvalidArgumentError, match=r"grace is .* zero or more"):
        seconds(given, "grace")


@pytest.mark.parametrize("given", [None, [], object()])
def test_what_is_no_duration_at_all_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="timeout is "):
        seconds(given, "timeout")


def test_the_argument_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"WINDLASS_URL": "memory:"}
    assert store_url("sqlite:///mine.db", environment) == "sqlite:///mine.db"
    assert store_url(None, environment) == "memory:"
    assert store_url(None, {}) == DEFAULT_URL
    assert store_url("", {"WINDLASS_URL": ""}) == DEFAULT_URL


def test_the_environment_of_the_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "memory:")
    assert store_url() == "memory:"
    monkeypatch.delenv("WINDLASS_URL")
    assert store_url() == DEFAULT_URL
