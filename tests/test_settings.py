"""Settings: durations, sizes, precedence of their sources, and store URLs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import Context, Windlass, WorkerConfig
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import InvalidArgumentError, WindlassError
from windlass.settings import DEFAULT_URL, data_directory, load_settings, store_key, store_url
from windlass.store import Retention
from windlass.stores import open_store, sqlite_path


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
def test_a_duration_is_parsed(given: Duration, expected: float) -> None:
    assert to_seconds(given) == expected


@pytest.mark.parametrize("given", ["", "5", "five", "5 parsecs", "1h30", "-5s", "5s!", "s"])
def test_text_that_is_no_duration_is_refused_with_examples(given: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r'delay is .*; write .*"1h30m"') as caught:
        to_seconds(given, "delay")
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize("given", [-1, -0.001, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_an_invalid_duration_is_refused(given: Duration) -> None:
    with pytest.raises(InvalidArgumentError, match=r"grace is .* zero or more"):
        to_seconds(given, "grace")


@pytest.mark.parametrize("given", [None, [], object()])
def test_a_value_of_another_type_is_refused_with_its_name(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="timeout is "):
        to_seconds(given, "timeout")


def test_an_argument_overrides_the_environment_which_overrides_the_default() -> None:
    environment = {"WINDLASS_URL": "memory:"}
    assert store_url("sqlite:///mine.db", environment) == "sqlite:///mine.db"
    assert store_url(None, environment) == "memory:"
    assert store_url(None, {}) == DEFAULT_URL
    assert store_url("", {"WINDLASS_URL": ""}) == DEFAULT_URL


def test_the_environment_of_the_process_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "memory:")
    assert store_url() == "memory:"
    monkeypatch.delenv("WINDLASS_URL")
    assert store_url() == DEFAULT_URL


# -- settings and their origin


def test_the_environment_overrides_the_file_which_overrides_the_default(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").write_text('url = "sqlite:////srv/file.db"\ngrace = 5\n')
    found = load_settings({}, {"WINDLASS_GRACE": "7"}, tmp_path)
    assert (found["grace"].value, found["grace"].origin) == (7.0, "environment WINDLASS_GRACE")
    assert found["url"].value == "sqlite:////srv/file.db"
    assert found["url"].origin == str(tmp_path / "windlass.toml")
    assert load_settings({"grace": "9s"}, {"WINDLASS_GRACE": "7"}, tmp_path)["grace"].value == 9.0


def test_a_setting_without_a_value_is_unset_or_the_default(tmp_path: Path) -> None:
    found = load_settings({"lease": None}, {"WINDLASS_LEASE": ""}, tmp_path)
    assert (found["lease"].value, found["lease"].origin) == (None, "unset")
    assert (found["url"].value, found["url"].origin) == (DEFAULT_URL, "default")
    assert not found["url"].is_set
    same = load_settings({"url": DEFAULT_URL}, {}, tmp_path)["url"]
    assert same.value == DEFAULT_URL
    assert same.is_set


def test_the_nearest_file_upward_applies_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.windlass]\nurl = "sqlite:///jobs.db"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    assert load_settings({}, {}, inner)["url"].value == f"sqlite:///{tmp_path}/jobs.db"
    (inner / "windlass.toml").write_text("")
    assert load_settings({}, {}, inner)["url"].value == DEFAULT_URL


def test_queues_are_parsed_from_text_and_from_a_table(tmp_path: Path) -> None:
    assert load_settings({"queues": "media=2, default"}, {}, tmp_path)["queues"].value == {
        "media": 2,
        "default": None,
    }
    (tmp_path / "windlass.toml").write_text("[queues]\nmedia = 3\n")
    assert load_settings({}, {}, tmp_path)["queues"].value == {"media": 3}


def test_a_key_comes_from_the_settings_and_errors_never_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "windlass.toml").write_text('key = "from the file"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WINDLASS_KEY", raising=False)
    assert store_key() == "from the file"
    monkeypatch.setenv("WINDLASS_KEY", "from the environment")
    assert store_key() == "from the environment"
    assert store_key("given") == "given"
    (tmp_path / "windlass.toml").write_text("key = 4711")
    monkeypatch.delenv("WINDLASS_KEY")
    with pytest.raises(WindlassError, match="must be a string") as raised:
        store_key()
    assert "4711" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url = 5", "url in .*windlass.toml is 5; it must be a string"),
        ("concurrency = 0", "concurrency in .* is 0; it must be an integer"),
        ("concurrency = 1.5", "an integer"),
        ('lease = "soon"', "lease in .* is 'soon'; write seconds"),
        ("[queues]\nmedia = true", "'media' of queues in .* is True"),
        ("url = ", "cannot be read as TOML"),
        ("color = 1", "unknown settings: color; valid are url, app"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_source(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "windlass.toml").write_text(text)
    with pytest.raises(WindlassError, match=message):
        load_settings({}, {}, tmp_path)


@pytest.mark.parametrize(
    ("given", "size"),
    [("512M", 2**29), ("2G", 2**31), ("1.5g", 3 * 2**29), ("64 MiB", 2**26), ("1024", 1024),
     (1024, 1024), ("2kb", 2048), ("1T", 2**40)],
)  # fmt: skip
def test_a_size_is_parsed(tmp_path: Path, given: Any, size: int) -> None:
    assert load_settings({"max_memory": given}, {}, tmp_path)["max_memory"].value == size


@pytest.mark.parametrize("given", ["", "much", "-1M", "0", 0, True, "5X", "M"])
def test_text_that_is_no_size_is_refused_with_examples(tmp_path: Path, given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r'max_memory is .*; write it as "512M"'):
        load_settings({"max_memory": given}, {}, tmp_path)


def test_the_default_retention_is_that_of_the_store(tmp_path: Path) -> None:
    found = load_settings({}, {}, tmp_path)
    for name in ("succeeded", "canceled", "failed", "log"):
        assert found[f"keep_{name}"].value == getattr(Retention(), name)


def test_the_data_directory_has_the_same_precedence_as_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    monkeypatch.chdir(inner)
    monkeypatch.delenv("WINDLASS_DATA", raising=False)
    assert data_directory() == inner / "windlass-data"
    (tmp_path / "windlass.toml").write_text('data = "kept"\n')
    assert data_directory() == tmp_path / "kept"
    monkeypatch.setenv("WINDLASS_DATA", "/srv/kept")
    assert data_directory() == Path("/srv/kept")
    assert data_directory("mine") == inner / "mine"
    monkeypatch.delenv("WINDLASS_DATA")
    app = Windlass("memory:")

    @app.task
    def task(ctx: Context) -> str:
        return str(ctx.workspace.parent.parent)

    job = task.enqueue()
    app.sync.call(app.worker(WorkerConfig(burst=True)).run())
    assert job.result() == str(tmp_path / "kept")
    app.close()


@pytest.mark.parametrize("name", ["c#", "why?", "100%", "%41", "back\\slash", "ä"])
def test_a_relative_url_works_in_a_directory_with_special_characters(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    place.mkdir()
    (place / "windlass.toml").write_text('url = "sqlite:///jobs.db"\n')
    assert sqlite_path(load_settings({}, {}, place)["url"].value) == place / "jobs.db"


# -- URLs of stores


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///ä.db", "ä.db"),
        ("sqlite:///%C3%A4%231.db", "ä#1.db"),
        ("sqlite:///what%3F.db", "what?.db"),
        ("sqlite:///two words.db", "two words.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite:///100%.db", "100%.db"),
    ],
)
def test_an_escaped_url_opens_the_file_with_special_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path(url) == tmp_path / name
    asyncio.run(ping(url))
    assert name in {path.name for path in tmp_path.iterdir()}


async def ping(url: str) -> None:
    async with open_store(url) as store:
        await store.ping()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///ä#1.db", "contains a '#'.*write it as %23"),
        ("sqlite:///a.db#", "contains a '#'"),
        ("sqlite:///what?.db", "unknown options: .db .*as %3F"),
        ("sqlite:///what?really=.db", "unknown options: really"),
        ("sqlite:///a\tb.db", "control character"),
        ("sqlite:///a%00b.db", "control character"),
        ("memory:?x", "unknown options: x"),
    ],
)
def test_a_url_with_an_unescaped_end_is_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        open_store(url)
