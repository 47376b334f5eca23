"""Malformed store URLs: refused with a fix, and without the password in the message."""

from __future__ import annotations

import traceback

import pytest
from typer.testing import CliRunner

from windlass import Windlass
from windlass.cli import cli
from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.stores import open_store, public_url, sqlite_path

SECRET = "hunter2"
ESCAPES = "in the password %40 for @, %2F for /"
MALFORMED = [
    (f"postgresql://ann:{SECRET}@host:port/jobs", "an invalid port"),
    (f"postgresql://ann:{SECRET}@host:99999/jobs", "an invalid port"),
    (f"postgresql://ann:{SECRET}@host:0/jobs", "an invalid port"),
    (f"postgresql://ann:{SECRET}@one,,two/jobs", "has no host"),
    (f"postgresql://ann:p@{SECRET}/w@host/jobs", ESCAPES),
    (f"postgresql://ann:p@{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://ann:p/{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://ann:p?{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://ann:p#{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://ann:[{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://ann:[{SECRET}]@host/jobs", ESCAPES),
    (f"postgresql://ann:{SECRET}\N{ACCOUNT OF}@host/jobs", ESCAPES),
    (f"postgresql://an@n:{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://ann:{SECRET}/jobs", "an invalid port"),
    (f"postgresql://ann:{SECRET}", "an invalid port"),
    (f"postgresql:/ann:{SECRET}@host/jobs", ESCAPES),
    (f"postgresql:ann:{SECRET}@host/jobs", ESCAPES),
    (f"postgresql://host/jobs?password={SECRET}@x", ESCAPES),
    (f"postgresql://host/jobs?PASSWORD={SECRET}#x", ESCAPES),
    (f"postgresql://host/jobs?pass%77ord={SECRET}&pool=x", "invalid option in the store URL"),
    (f"postgresql://ann:{SECRET}@host/jobs?timeout=soon", "timeout=soon"),
    (f"postgresql://ann:{SECRET}\n@host/jobs", "contains a control character"),
    (f"postgres+psycopg://ann:{SECRET}@host/jobs", "unknown scheme 'postgres+psycopg'"),
    (f"mysql://ann:{SECRET}@host/jobs", "unknown scheme 'mysql'; expected memory: or sqlite"),
    (f"ann:{SECRET}@host/jobs", "unknown scheme 'ann'"),
    (f"//ann:{SECRET}@host/jobs", "has no scheme"),
    (f"sqlite://ann:{SECRET}@host/jobs.db", "names no file"),
    (f"sqlite:///jobs.db?password={SECRET}", "has unknown options: password"),
    (f"memory:?password={SECRET}", "has unknown options: password"),
]


@pytest.mark.parametrize(("url", "message"), MALFORMED)
def test_a_url_error_hides_the_password(url: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        Windlass(url)
    assert message in str(raised.value)
    assert SECRET not in "".join(traceback.format_exception(raised.value)).replace(repr(url), "")
    assert SECRET not in str(raised.value)
    assert SECRET not in public_url(url)


@pytest.mark.parametrize(("url", "message"), MALFORMED)
@pytest.mark.parametrize("words", [["check"], ["jobs", "list"], ["migrate"], ["config", "show"]])
def test_no_command_prints_the_password_or_a_traceback(
    url: str, message: str, words: list[str]
) -> None:
    answer = CliRunner().invoke(cli, [*words, "--url", url])
    assert answer.exception is None or isinstance(answer.exception, SystemExit)
    assert SECRET not in answer.output
    if words[0] != "config":
        assert answer.exit_code == (1 if words == ["check"] else 2)
        assert message in " ".join(answer.output.split())
    assert "durability" not in answer.output


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@[::1]:1/jobs",
        f"postgresql://ann:{SECRET}@127.0.0.1:1,localhost:1/jobs",
        f"postgresql://ann:{SECRET}%40%2F@127.0.0.1:1/jobs?connect_timeout=5",
        f"postgresql://ann:{SECRET}@/jobs?host=/none",
        f"postgresql:///jobs?host=/none&user=ann&password={SECRET}",
    ],
)
async def test_a_valid_url_of_an_unreachable_server_is_an_outage(url: str) -> None:
    async with open_store(url) as store:
        with pytest.raises(StoreUnavailableError, match="cannot be reached") as raised:
            await store.ping()
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(vars(store))


@pytest.mark.parametrize(
    "option", ["sslmode=perhaps", "host=one,,two", "port=many", "target_session_attrs=any-at-all"]
)
async def test_an_option_that_the_driver_refuses_is_not_an_outage(option: str) -> None:
    async with open_store(f"postgresql://ann:{SECRET}@/jobs?{option}") as store:
        with pytest.raises(InvalidArgumentError, match=r"the store URL of .* is invalid") as raised:
            await store.ping()
    assert SECRET not in "".join(traceback.format_exception(raised.value))


async def test_a_closed_app_raises_without_the_password() -> None:
    app = Windlass(f"postgresql://ann:{SECRET}@host/jobs")
    await app.aclose()
    with pytest.raises(StoreUnavailableError, match="is closed") as raised:
        app.client()
    assert SECRET not in str(raised.value)


def test_an_unknown_durability_is_not_reported_as_full() -> None:
    answer = CliRunner().invoke(cli, ["check", "--url", "sqlite:///none/x.db?durability=most"])
    assert "invalid durability 'most'" in answer.output
    assert "full: accepted jobs" not in answer.output


def test_only_files_have_a_path() -> None:
    assert sqlite_path("memory:") is sqlite_path("postgresql://host/jobs") is None
    assert str(sqlite_path("sqlite:////tmp/x@y.db")) == "/tmp/x@y.db"
