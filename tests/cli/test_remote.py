"""Every command over HTTP: same output and effect as on the database.

Two stores hold the same jobs. One is opened as a file, the other through a server. Each command of
the table runs once on both, in order, and prints the same JSON, except for ids and times.
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
from tests.cli.conftest import TASKS, CliResult
from tests.server.conftest import LiveServer, run_server

from windlass import Limit, Windlass, WorkerConfig
from windlass.cli import cli
from windlass.server.auth.api_keys import Role
from windlass.server.auth.audit import AuditLog
from windlass.server.auth.token_signer import SIGNING_KEY, SIGNING_RECORD
from windlass.server.config import AuthMode, ServerConfig
from windlass.testing import make_job

# {…} is the id of a job enqueued before, or an id of earlier output that `as` has named.
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
flows list
flows list -n 1
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
WITHOUT = {"worker", "bench"}  # no JSON, and figures that differ; they have their own tests
# Commands about the database itself, or about the machine that they run on.
LOCAL_ONLY = {"dev", "serve", "migrate", "config show"}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")


@dataclass
class Installation:
    """A working directory, and the command line with the URL of a store and a key."""

    project_dir: Path
    url: str
    key: str | None = None
    ids: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        return {"WINDLASS_URL": self.url} | ({"WINDLASS_KEY": self.key} if self.key else {})

    def run_cli(self, words: list[str]) -> CliResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.project_dir)
            for name, value in self.environment().items():
                patch.setenv(name, value)
            patch.delitem(sys.modules, "tasks", raising=False)  # its app reads the settings again
            patch.syspath_prepend(str(self.project_dir))
            return CliResult(tuple(words))

    def run(self, line: str) -> Any:
        """Return code and output of a command; ids are numbered by their first occurrence."""
        text, _, name = line.partition("  as ")
        ids = {f"{{{name}}}": id_ for name, id_ in self.ids.items()}
        given = [ids.get(word, word.replace("_", " ")) for word in text.split()]
        done = self.run_cli([*given, "--json"])
        answer = _values(done.out)
        if name:
            self.ids[name] = answer[0]["id"]
        return done.code, self._plain(answer), self._plain(done.err)

    def _plain(self, value: Any) -> Any:
        match value:
            case dict():
                return {
                    name: self._plain(one)
                    for name, one in value.items()
                    if name not in VARYING_KEYS
                }
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
    """Return the JSON values of the output: none, one or several."""
    found, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


VARYING_KEYS = {"correlationId", "etaSeconds", "oldestQueued"}


def create_jobs(project_dir: Path) -> dict[str, str]:
    """Create a file with finished and waiting jobs; return their ids by name."""
    url = f"sqlite:///{project_dir}/jobs.db"
    (project_dir / "tasks.py").write_text(TASKS + WAITING)
    ids: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project_dir)
        patch.setenv("WINDLASS_URL", url)
        space: dict[str, Any] = {"__name__": "tasks"}
        exec(compile(TASKS + WAITING, "tasks.py", "exec"), space)
        app: Windlass = space["app"]

        def add(name: str, task: str, options: dict[str, Any] | None = None, **given: Any) -> None:
            ids[name] = str(space[task].options(**options or {}).enqueue(**given).id)

        flow = app.flow()
        first, second = flow.add(space["film"], "boat"), flow.add(space["stepped"])
        flow.add(space["add"], 1).after(first, second)
        ids["flow"] = str(flow.enqueue().id)
        add("done", "add", a=1)
        add("film", "film", title="tide")
        add("failed", "broken", why="rain")
        add("stepped", "stepped")
        app.sync.call(
            app.worker(WorkerConfig(burst=True, poll_interval=0.02, sweep_interval=0.02)).run()
        )
        app.limits.set("queue:tight", Limit(concurrency=1))
        add("approval", "approval")
        add("first", "add", {"queue": "tight"}, a=2)
        add("limited", "add", {"queue": "tight"}, a=3)
        add("held", "add", {"hold": True}, a=4)
        add("queued", "add", a=5)
        add("later", "add", {"queue": "later", "delay": 3600}, a=6)
        app.close()
    asyncio.run(show_worker(url, "mill-1", claimed=0.5))
    return ids


@pytest.fixture(scope="module")
def no_settings() -> Iterator[None]:
    """Remove the settings of the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
            patch.delenv(name)
        patch.setenv("COLUMNS", "120")
        yield


@pytest.fixture(scope="module")
def local(no_settings: None, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    project_dir = tmp_path_factory.mktemp("local")
    return Installation(
        project_dir, f"sqlite:///{project_dir}/jobs.db", ids=create_jobs(project_dir)
    )


@pytest.fixture(scope="module")
def served(local: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A copy of the local store, behind a server."""
    project_dir = tmp_path_factory.mktemp("remote")
    shutil.copytree(local.project_dir, project_dir, dirs_exist_ok=True)
    app = Windlass(f"sqlite:///{project_dir}/jobs.db", data=project_dir / "data")
    with run_server(
        project_dir, ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05), app=app
    ) as one:
        yield one


@pytest.fixture(scope="module")
def remote(
    local: Installation, served: LiveServer, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """Another directory, with the tasks, the URL of the server, and a key."""
    project_dir = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(local.project_dir / "tasks.py", project_dir)
    key = served.key(Role.ADMIN)
    assert (
        local.run_cli(["keys", "create", "test", "--role", "admin"]).code == 0
    )  # both stores have it
    return Installation(project_dir, served.url, key, ids=dict(local.ids))


def commands(group: Any, name: str = "") -> Iterator[str]:
    for word, one in group.commands.items():
        full = f"{name} {word}".strip()
        if hasattr(one, "commands"):
            yield from commands(one, full)
        else:
            yield full


def test_every_command_is_in_the_table() -> None:
    """Except commands without a counterpart over HTTP."""
    lines = COMMANDS.strip().splitlines()
    found = set(commands(typer.main.get_command(cli)))
    named = {name for name in found for line in lines if f"{line} ".startswith(f"{name} ")}
    assert found == named | WITHOUT | LOCAL_ONLY


@pytest.mark.slow
def test_each_command_prints_the_same_over_http_as_on_the_database(
    local: Installation, remote: Installation
) -> None:
    for line in COMMANDS.strip().splitlines():
        here, there = local.run(line), remote.run(line)
        if line == "check":  # which reports the kind of store
            assert (here[0], there[0], there[1][0]["ok"]) == (0, 0, True)
            continue
        assert there == here, line


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ADMIN])
def test_only_admins_manage_keys(served: LiveServer, remote: Installation, role: Role) -> None:
    other = Installation(remote.project_dir, remote.url, served.key(role))
    for words in (
        ["keys", "create", "more", "--role", "admin"],
        ["keys", "list"],
        ["keys", "revoke", "000000000000"],
        ["keys", "rotate"],
    ):
        done = other.run_cli(words)
        assert (done.code, "denied this to key" in done.err) == (3, True), (words, done.err)


def test_rotate_over_http_changes_the_signing_key_and_is_audited(
    served: LiveServer, remote: Installation
) -> None:
    async def look() -> tuple[bytes, str]:
        store = served.app.client().store
        [entry] = await store.get_records(SIGNING_KEY, [SIGNING_RECORD])
        [note] = await AuditLog(store).list(limit=1)
        assert entry is not None
        return entry.value, f"{note.key_id} {note.action} {note.target}"

    assert remote.run_cli(["keys", "rotate"]).code == 0
    before, _ = served.app.sync.call(look())
    assert remote.run_cli(["keys", "rotate"]).code == 0
    after, note = served.app.sync.call(look())
    assert after != before
    assert remote.key is not None
    assert note == f"{remote.key.split('_')[1]} rotate signing key task-token"


@pytest.mark.parametrize("scope", [{"owner": "ann"}, {"team": "red"}])
def test_why_is_allowed_only_with_access_to_the_job(
    served: LiveServer, remote: Installation, scope: dict[str, str]
) -> None:
    """The key may not read queues, workers and limits."""
    job = make_job(queue="tight", **scope)
    served.app.sync.call(served.app.aenqueue_each([job]))
    allowed = Installation(remote.project_dir, remote.url, served.key(Role.VIEWER, **scope))
    diagnosis = allowed.run_cli(["jobs", "why", str(job.id), "--json"])
    assert diagnosis.code == 0, diagnosis.err
    assert diagnosis.json == remote.run_cli(["jobs", "why", str(job.id), "--json"]).json
    assert allowed.run_cli(["queues", "list"]).code == 3
    others = Installation(
        remote.project_dir, remote.url, served.key(Role.VIEWER, owner="bob", team="blue")
    )
    for id_ in (str(job.id), str(uuid4())):
        refused = others.run_cli(["jobs", "why", id_])
        assert (refused.code, refused.err.strip()) == (1, f"error: no job {id_}")


def test_a_worker_runs_jobs_over_http(served: LiveServer, remote: Installation) -> None:
    """A separate process that has only the URL and a key."""
    words = ["enqueue", "greet", "name=ann", "--queue", "by-http", "-A", "tasks:app", "--json"]
    enqueued = remote.run_cli(words)
    worker = Installation(remote.project_dir, remote.url, served.key(Role.WORKER))
    subprocess.run(
        [sys.executable, "-m", "windlass", "worker", "tasks:app", "--burst", "-Q", "by-http"],
        cwd=remote.project_dir,
        env=os.environ | worker.environment(),
        check=True,
        capture_output=True,
        timeout=60,
    )
    job = remote.run_cli(["jobs", "show", enqueued.json["id"], "--json"]).json
    assert (job["state"], job["result"]) == ("succeeded", "hello ann")
