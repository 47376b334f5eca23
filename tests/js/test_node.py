"""The JavaScript client in Node: alone, and with real servers and broken connections."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.js.node import JS, program, run_tests
from tests.js.proxy import Proxy
from tests.js.sample_tasks import log_of, make
from tests.server.conftest import LiveServer, enqueue, run_server, until, wait_for

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.javascript_client import folder

ROOT = JS.parent
LISTENERS = ("first", "late", "slow")
CUTS = 10


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    place = tmp_path_factory.mktemp("node")
    with run_server(place, worker=True, app=make(place)) as server:
        yield server


@pytest.mark.parametrize("path", sorted(JS.glob("test/*.test.js")), ids=lambda path: path.stem)
def test_client_without_server(path: Path) -> None:
    run_tests(path)


def test_every_client_method_on_a_real_server(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.KEYS)
    with run_server(tmp_path, config, worker=True) as served:
        key = served.key(Role.OPERATOR)
        run_tests(
            JS / "test/real-server/all-methods.test.js", WINDLASS_URL=served.url, WINDLASS_KEY=key
        )


def test_each_listener_receives_the_whole_log_once_despite_connection_resets(
    served: LiveServer, tmp_path: Path
) -> None:
    """The connection is cut while the job writes events."""
    gate = tmp_path / "gate"
    with served.client() as web, Proxy(served.url) as proxy:
        job = enqueue(web, "chatter", gate=str(gate))["id"]
        with program("follow.js", proxy.url, job) as node:
            for number in range(1, CUTS + 1):
                node.wait_for(
                    lambda line: is_from_first_listener(line, "open", value=True),
                    "it is connected",
                    number,
                )
                node.wait_for(
                    lambda line: is_from_first_listener(line, "event"),
                    "it receives events",
                    10 * number,
                )
                proxy.cut()
                node.wait_for(
                    lambda line: is_from_first_listener(line, "open", value=False),
                    "it breaks",
                    number,
                )
            gate.touch()
        log = log_of(web, job)
    assert len(log) > 10 * CUTS
    for listener in LISTENERS:
        assert node.transcript(listener) == log
    assert node.lines[-1] == {"state": "succeeded"}
    assert not [line for line in node.lines if "log" in line]


def is_from_first_listener(line: dict[str, Any], key: str, *, value: bool | None = None) -> bool:
    return line.get("listener") == "first" and key in line and (value is None or line[key] is value)


def seq_of(line: dict[str, Any]) -> int:
    return int(line["event"]["id"].rpartition("-")[2]) if "event" in line else 0


def test_all_listeners_share_one_connection(served: LiveServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with served.client() as web:
        job = enqueue(web, "video", gate=str(gate))["id"]
        with program("follow.js", served.url, job) as node:
            for listener in LISTENERS:
                node.wait_for(
                    lambda line, listener=listener: (  # type: ignore[misc]
                        line.get("listener") == listener and seq_of(line) >= 6
                    ),
                    f"{listener} receives events",
                )
            assert served.context.hub.open_streams == 1
            gate.touch()
        log = log_of(web, job)
    for listener in LISTENERS:
        assert node.transcript(listener) == log
    for listener in LISTENERS[:2]:
        percents = [line["percent"] for line in node.lines
                    if line.get("listener") == listener and "percent" in line]  # fmt: skip
        assert percents == sorted(percents)
        assert 40 in percents
        assert percents[-1] == 100


def test_listeners_continue_when_the_server_is_replaced(
    tmp_path: Path,
) -> None:
    """The first server stops; the second has another port and the same jobs."""
    gate = tmp_path / "gate"
    with ExitStack() as stack:
        first = stack.enter_context(run_server(tmp_path, app=make(tmp_path)))
        proxy = stack.enter_context(Proxy(first.url))
        with first.client() as web:
            job = enqueue(web, "video", gate=str(gate))["id"]
        node = stack.enter_context(program("follow.js", proxy.url, job))
        node.wait_for(lambda line: seq_of(line) >= 2, "it follows")
        first.stop()
        node.wait_for(lambda line: line.get("open") is False, "it notices")
        gate.touch()
        second = stack.enter_context(run_server(tmp_path, worker=True, app=make(tmp_path)))
        proxy.target = second.url
        with second.client() as web:
            wait_for(web, job, "succeeded")
            node.process.wait(20)
            log = log_of(web, job)
    for listener in LISTENERS:
        assert node.transcript(listener) == log
    assert node.lines[-1] == {"state": "succeeded"}


def test_many_jobs_share_one_connection_and_a_list_sends_snapshots(
    served: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with served.client() as web, Proxy(served.url) as proxy:
        jobs = [
            enqueue(web, "film", {"tags": ["many"]}, gate=str(gate), lines=5)["id"]
            for _ in range(4)
        ]
        with program("follow-many.js", proxy.url, "many", *jobs) as node:
            until(lambda: served.context.hub.followed_jobs == 4, "all are followed")
            until(lambda: served.context.hub.open_streams == 2, "on two connections")
            proxy.cut()
            until(lambda: served.context.hub.followed_jobs == 4, "they are followed again")
            gate.touch()
        for job in jobs:
            assert node.transcript(job) == log_of(web, job)
    assert sorted(line["ended"] for line in node.lines if "ended" in line) == sorted(jobs)
    last = {
        snapshot["id"]: snapshot["state"]
        for line in node.lines
        if (snapshot := line.get("snapshot"))
    }
    assert last == dict.fromkeys(jobs, "succeeded")


def test_the_node_package_has_the_version_and_license_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package = json.loads((JS / "package.json").read_text())
    assert (package["version"], package["license"]) == (project["version"], project["license"])
    assert "dependencies" not in package


def test_the_wheel_contains_the_client() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    inside = "windlass/server/static/js"
    assert carried == {f"js/{name}": f"{inside}/{name}" for name in ("windlass.js", "src")}
    assert (folder() / "windlass.js").is_file()
    assert (folder() / "src/client.js").is_file()
