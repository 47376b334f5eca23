"""Settings: durations in words, and where the jobs are kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass.config import DEFAULT_URL, settings, store_url
from windlass.core.duration import Duration, seconds
from windlass.core.errors import InvalidArgumentError, WindlassError


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


# -- settings and their origin


def test_the_file_stands_between_the_environment_and_the_default(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").write_text('url = "sqlite:////srv/file.db"\ngrace = 5\n')
    found = settings({}, {"WINDLASS_GRACE": "7"}, tmp_path)
    assert (found["grace"].value, found["grace"].origin) == (7.0, "environment WINDLASS_GRACE")
    assert found["url"].value == "sqlite:////srv/file.db"
    assert found["url"].origin == str(tmp_path / "windlass.toml")
    assert settings({"grace": "9s"}, {"WINDLASS_GRACE": "7"}, tmp_path)["grace"].value == 9.0


def test_what_nobody_set_is_unset_or_the_default_and_tells_which(tmp_path: Path) -> None:
    found = settings({"lease": None}, {"WINDLASS_LEASE": ""}, tmp_path)
    assert (found["lease"].value, found["lease"].origin) == (None, "unset")
    assert (found["url"].value, found["url"].origin) == (DEFAULT_URL, "default")
    assert not found["url"].given
    same = settings({"url": DEFAULT_URL}, {}, tmp_path)["url"]
    assert same.value == DEFAULT_URL
    assert same.given


def test_the_nearest_file_upward_counts_and_its_paths_start_there(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.windlass]\nurl = "sqlite:///jobs.db"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    assert settings({}, {}, inner)["url"].value == f"sqlite:///{tmp_path}/jobs.db"
    (inner / "windlass.toml").write_text("")
    assert settings({}, {}, inner)["url"].value == DEFAULT_URL


def test_queues_are_read_from_words_and_from_a_table(tmp_path: Path) -> None:
    assert settings({"queues": "media=2, default"}, {}, tmp_path)["queues"].value == {
        "media": 2,
        "default": None,
    }
    (tmp_path / "windlass.toml").write_text("[queues]\nmedia = 3\n")
    assert settings({}, {}, tmp_path)["queues"].value == {"media": 3}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url = 5", "url in .*windlass.toml is 5; it must be a text"),
        ("concurrency = 0", "concurrency in .* is 0; it must be a whole number"),
        ("concurrency = 1.5", "whole number"),
        ('lease = "soon"', "lease in .* is 'soon'; write seconds"),
        ("[queues]\nmedia = true", "'media' of queues in .* is True"),
        ("url = ", "cannot be read as TOML"),
        ("colour = 1", "unknown settings: colour; known are url, app"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "windlass.toml").write_text(text)
    with pytest.raises(WindlassError, match=told):
        settings({}, {}, tmp_path)
