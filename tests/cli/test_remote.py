"""Every command over HTTP: same output and effect as on the database.

Two places hold the same jobs. One is spoken to as a file, the other through a server; each command
of the table runs once in both, in order, and its JSON must be alike, but for ids and times.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
from tests.cli.commands.test_flows import WAITING
from tests.cli.commands.test_workers import show as show_worker
from tests.cli.conftest import TASKS, Asked
from tests.server.conftest import LiveServer, run_server

from windlass import Limit, Windlass, WorkerConfig
from windlass.cli import cli
from windlass.server.auth.api_keys import Role
from windlass.server.auth.audit import AuditLog
from windlass.server.auth.token_signer import SIGNING_KEY, SIGNING_RECORD
from windlass.server.config import AuthMode, ServerConfig
from windlass.testing import make_job

# {…} is a job that was put in before, or the id that `as` gave to an earlier answer.
COMMANDS = """
jobs list -n 100
jobs list -s failed --queue default -n 1
jobs show {film}
jobs watch {film}
jobs logs {film}
jobs logs {film} --follow --after 2
jobs why {queued}
jobs why {failed}
jobs why {approval}
jobs why {limited}
jobs submit {held}
jobs cancel {queued} --reason enough
jobs cancel {done} {first}
jobs retry {failed}
jobs resume {stepped}
jobs signal {approval} approved {"by":"ann"}
jobs delete {done}
jobs delete {queued} {film}
flows show {flow}
flows retry {flow}
flows cancel {flow}
flows resume {flow}
flows cancel {flow}
queues list
queues pause media slow
queues list
queues resume media
queues clear later --yes --reason enough
queues drain empty
limits set queue:media --concurrency 2 --rate 5/m
limits list
limits reset queue:media
limits remove key:none
schedules add nightly greet name=ann --cron 30_3_*_*_* -A tasks:app
schedules list
schedules pause nightly
schedules resume nightly
schedules run nightly
schedules delete nightly
workers list
keys create ci --role producer --owner build --expires-in 90d  as ci
keys list
keys revoke {ci}
keys list
keys rotate
enqueue add a=1 --queue fast --tag x -A tasks:app
enqueue add a=1 --request-id r -A tasks:app
enqueue add a=1 --request-id r -A tasks:app
check
jobs list -n 100
"""
WITHOUT = {"worker"}  # has no JSON; it has a test of its own
# What is about the database itself, or about the machine that the command runs on.
NOT_ELSEWHERE = {"dev", "serve", "migrate", "bench", "config show"}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")


@dataclass
class World:
    """The jobs in one place, and the command line with nothing but its URL, and a key."""

    place: Path
    url: str
    key: str | None = None
    ids: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {"WINDLASS_URL": self.url} | ({"WINDLASS_KEY": self.key} if self.key else {})

    def ask(self, words: list[str]) -> Asked:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.place)
            for name, value in self.environment().items():
                patch.setenv(name, value)
            patch.delitem(sys.modules, "tasks", raising=False)  # its app reads the settings again
            patch.syspath_prepend(str(self.place))
            return Asked(tuple(words))

    def run(self, line: str) -> Any:
        """What a command answers, with ids and times as they were met: the first, the second …"""
        text, _, name = line.partition("  as ")
        ids = {f"{{{name}}}": id_ for name, id_ in self.ids.items()}
        given = [ids.get(word, word.replace("_", " ")) for word in text.split()]
        done = self.ask([*given, "--json"])
        answer = _values(done.out)
        if name:
            self.ids[name] = answer[0]["id"]
        return done.code, self._plain(answer), self._plain(done.err)

    def _plain(self, value: Any) -> Any:
        match value:
            case dict():
                return {name: self._plain(one) for name, one in value.items() if name not in HERE}
            case list():
                return [self._plain(one) for one in value]
            case str():
                text = UUID.sub(lambda found: self._named(found[0]), TIME.sub("<time>", value))
                return re.sub(r"wl_\w{12}_[\w-]{43}|\b[0-9a-f]{12}\b", "<key>", text)
            case float():
                return "<number>"
        return value

    def _named(self, id_: str) -> str:
        return self.names.setdefault(id_, f"<id {len(self.names)}>")


def _values(text: str) -> list[Any]:
    """One, or many, or none, as the command has it."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


HERE = {"correlationId", "etaSeconds", "oldestQueued"}


def filled(place: Path) -> dict[str, str]:
    """Jobs in a file there: some have run, some wait. Answers their ids by what they are."""
    url = f"sqlite:///{place}/jobs.db"
    (place / "tasks.py").write_text(TASKS + WAITING)
    ids: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("WINDLASS_URL", url)
        space: dict[str, Any] = {"__name__": "tasks"}
        exec(compile(TASKS + WAITING, "tasks.py", "exec"), space)
        app: Windlass = space["app"]

        def put(name: str, task: str, options: dict[str, Any] | None = None, **given: Any) -> None:
            ids[name] = str(space[task].options(**options or {}).enqueue(**given).id)

        flow = app.flow()
        first, second = flow.add(space["film"], "boat"), flow.add(space["stepped"])
        flow.add(space["add"], 1).after(first, second)
        ids["flow"] = str(flow.enqueue().id)
        put("done", "add", a=1)
        put("film", "film", title="tide")
        put("failed", "broken", why="rain")
        put("stepped", "stepped")
        app.sync.call(
            app.worker(WorkerConfig(burst=True, poll_interval=0.02, sweep_interval=0.02)).run()
        )
        app.limits.set("queue:tight", Limit(concurrency=1))
        put("approval", "approval")
        put("first", "add", {"queue": "tight"}, a=2)
        put("limited", "add", {"queue": "tight"}, a=3)
        put("held", "add", {"hold": True}, a=4)
        put("queued", "add", a=5)
        put("later", "add", {"queue": "later", "delay": 3600}, a=6)
        app.close()
    asyncio.run(show_worker(url, "mill-1", claimed=0.5))
    return ids


@pytest.fixture(scope="module")
def bare() -> Iterator[None]:
    """No settings but those that a test makes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
            patch.delenv(name)
        patch.setenv("COLUMNS", "120")
        yield


@pytest.fixture(scope="module")
def home(bare: None, tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("home")
    return World(place, f"sqlite:///{place}/jobs.db", ids=filled(place))


@pytest.fixture(scope="module")
def served(home: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A copy of what is at home, behind a door."""
    place = tmp_path_factory.mktemp("away")
    shutil.copytree(home.place, place, dirs_exist_ok=True)
    app = Windlass(f"sqlite:///{place}/jobs.db", data=place / "data")
    with run_server(place, ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05), app=app) as one:
        yield one


@pytest.fixture(scope="module")
def away(home: World, served: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Somewhere else, with the tasks, the server's address, and a key."""
    place = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(home.place / "tasks.py", place)
    key = served.key(Role.ADMIN)
    assert home.ask(["keys", "create", "test", "--role", "admin"]).code == 0  # as there
    return World(place, served.url, key, ids=dict(home.ids))


def commands(group: Any, name: str = "") -> Iterator[str]:
    for word, one in group.commands.items():
        full = f"{name} {word}".strip()
        if hasattr(one, "commands"):
            yield from commands(one, full)
        else:
            yield full


def test_every_command_is_in_the_table() -> None:
    """Or has a reason not to be."""
    lines = COMMANDS.strip().splitlines()
    found = set(commands(typer.main.get_command(cli)))
    named = {name for name in found for line in lines if f"{line} ".startswith(f"{name} ")}
    assert found == named | WITHOUT | NOT_ELSEWHERE


@pytest.mark.slow
def test_each_command_prints_the_same_over_http_as_on_the_database(
    home: World, away: World
) -> None:
    for line in COMMANDS.strip().splitlines():
        here, there = home.run(line), away.run(line)
        if line == "check":  # which looks at what is there
            assert (here[0], there[0], there[1][0]["ok"]) == (0, 0, True)
            continue
        assert there == here, line


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ADMIN])
def test_keys_are_for_admins(served: LiveServer, away: World, role: Role) -> None:
    other = World(away.place, away.url, served.key(role))
    for words in (
        ["keys", "create", "more", "--role", "admin"],
        ["keys", "list"],
        ["keys", "revoke", "000000000000"],
        ["keys", "rotate"],
    ):
        done = other.ask(words)
        assert (done.code, "denied this to key" in done.err) == (3, True), (words, done.err)


def test_to_rotate_by_http_changes_the_servers_own_key_and_is_noted(
    served: LiveServer, away: World
) -> None:
    async def look() -> tuple[bytes, str]:
        store = served.app.client().store
        [entry] = await store.get_records(SIGNING_KEY, [SIGNING_RECORD])
        [note] = await AuditLog(store).list(limit=1)
        assert entry is not None
        return entry.value, f"{note.key_id} {note.action} {note.target}"

    assert away.ask(["keys", "rotate"]).code == 0
    before, _ = served.app.sync.call(look())
    assert away.ask(["keys", "rotate"]).code == 0
    after, note = served.app.sync.call(look())
    assert after != before
    assert away.key is not None
    assert note == f"{away.key.split('_')[1]} rotate signing key task-token"


@pytest.mark.parametrize("whose", [{"owner": "ann"}, {"team": "red"}])
def test_why_is_allowed_only_with_access_to_the_job(
    served: LiveServer, away: World, whose: dict[str, str]
) -> None:
    """Although queues, workers and limits are not readable for them."""
    job = make_job(queue="tight", **whose)
    served.app.sync.call(served.app.aenqueue_each([job]))
    theirs = World(away.place, away.url, served.key(Role.VIEWER, **whose))
    diagnosis = theirs.ask(["jobs", "why", str(job.id), "--json"])
    assert diagnosis.code == 0, diagnosis.err
    assert diagnosis.json == away.ask(["jobs", "why", str(job.id), "--json"]).json
    assert theirs.ask(["queues", "list"]).code == 3
    others = World(away.place, away.url, served.key(Role.VIEWER, owner="bob", team="blue"))
    for id_ in (str(job.id), str(uuid4())):
        refused = others.ask(["jobs", "why", id_])
        assert (refused.code, refused.err.strip()) == (1, f"error: no job {id_}")


def test_a_worker_works_by_http(served: LiveServer, away: World) -> None:
    """As a process of its own, with nothing but the address and a key."""
    put = away.ask(["enqueue", "greet", "name=ann", "--queue", "by-http", "-A", "tasks:app",
                    "--json"])  # fmt: skip
    worker = World(away.place, away.url, served.key(Role.WORKER))
    subprocess.run(
        [sys.executable, "-m", "windlass", "worker", "tasks:app", "--burst", "-Q", "by-http"],
        cwd=away.place,
        env=os.environ | worker.environment(),
        check=True,
        capture_output=True,
        timeout=60,
    )
    job = away.ask(["jobs", "show", put.json["id"], "--json"]).json
    assert (job["state"], job["result"]) == ("succeeded", "hello ann")
