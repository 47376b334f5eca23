"""`--json` prints what the HTTP API returns: the same fields with the same values."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.commands.test_workers import show as show_worker
from tests.cli.conftest import CliResult
from tests.server.conftest import run_server

from windlass import Windlass, WorkerConfig
from windlass.schemas.jobs import JobDetails, JobView

TASKS = """
from windlass import Context, Limit, Windlass, fixed

app = Windlass()

STAGES = {"plan": ("prepare", (0, 20)), "draw": ("render", (20, 100))}

@app.task(max_retries=1, backoff=fixed(0), stages=STAGES)
async def film(ctx: Context, title: str) -> None:
    async def voice() -> int:
        return 1
    ctx.stage("plan")
    await ctx.astep("voice", voice)
    ctx.stage("draw")
    ctx.progress(50, "half")
    ctx.log("a line")
    ctx.warn("careful")
    ctx.artifact("film", "file:///film")
    raise ValueError(title)

@app.task
async def add(a: int, b: int = 0) -> dict:
    return {"sum": a + b}

@app.task
async def canceled(ctx: Context) -> None:
    await app.client().cancel(ctx.job.id, by="ann", reason="rain")
    await ctx.await_for("never")

@app.task(limit=Limit(concurrency=1))
async def tight(ctx: Context) -> None:
    await ctx.await_for("never")
"""
NEVER_SET = {"crashCount", "sealed"}  # need a dead worker, and an encrypted value
CLI_ONLY = {"attempts", "dependsOn", "awaitedBy"}  # of `jobs show`; routes of their own


def load_tasks() -> dict[str, Any]:
    tasks: dict[str, Any] = {"__name__": "tasks"}
    exec(compile(TASKS, "tasks.py", "exec"), tasks)
    return tasks


class Site:
    """A store with jobs of all kinds; reads it by the command line and over HTTP."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ids: dict[str, str] = {}
        self.web: httpx.Client

    def cli(self, *words: str) -> Any:
        return json.loads(self._run(*words))

    def lines(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self._run(*words).splitlines()]

    def _run(self, *words: str) -> str:
        with self.settings():
            done = CliResult((*(word.format(**self.ids) for word in words), "--json"))
        assert done.code == 0, done.err
        return done.out

    def get(self, path: str) -> Any:
        return self._checked(self.web.get(f"/api/{path.format(**self.ids)}"))

    def post(self, path: str, **body: Any) -> Any:
        return self._checked(self.web.post(f"/api/{path.format(**self.ids)}", json=body or None))

    @contextmanager
    def settings(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.directory)
            for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
                patch.delenv(name)
            patch.setenv("WINDLASS_URL", f"sqlite:///{self.directory}/jobs.db")
            patch.setenv("WINDLASS_APP", "tasks:app")
            patch.delitem(sys.modules, "tasks", raising=False)
            patch.syspath_prepend(str(self.directory))
            yield

    @staticmethod
    def _checked(response: httpx.Response) -> Any:
        assert response.is_success, response.text
        return response.json()

    def create_jobs(self) -> None:
        """Create a store whose jobs together have a value in every field."""
        with self.settings():
            tasks = load_tasks()
            try:
                self.ids = self._enqueue_all(tasks)
            finally:
                tasks["app"].close()
        asyncio.run(show_worker(f"sqlite:///{self.directory}/jobs.db", "mill-1", claimed=0.5))

    @staticmethod
    def _enqueue_all(tasks: dict[str, Any]) -> dict[str, str]:
        app: Windlass = tasks["app"]
        add, tight = tasks["add"], tasks["tight"]
        parent = add.options(owner="ann").enqueue(1)
        everything = tasks["film"].options(
            owner="ann", team="red", tags=("x",), priority=5, unique_key="u", request_id="r",
            limit_key="k", expires_in=3600, headers={"a": "b"}, on_parent="run",
            depends_on=[parent],
        ).enqueue("tide")  # fmt: skip
        last = add.options(owner="ann", depends_on=[everything], on_parent="run").enqueue(2)
        canceled = tasks["canceled"].enqueue()
        flow = app.flow()
        first = flow.add(add, 3)
        flow.add(add, 4).after(first)
        run = flow.enqueue()
        app.sync.call(
            app.worker(WorkerConfig(burst=True, poll_interval=0.02, sweep_interval=0.02)).run()
        )
        jobs = {
            "parent": parent, "everything": everything, "last": last, "canceled": canceled,
            "retry": everything.retry(), "first": tight.enqueue(), "limited": tight.enqueue(),
            "held": add.options(hold=True, delay=3600).enqueue(5), "queued": add.enqueue(6),
        }  # fmt: skip
        jobs["child"] = add.options(depends_on=[jobs["held"]]).enqueue(7)
        app.schedules.add("nightly", add.new_job(8), cron="30 3 * * *")
        ids = {name: str(job.id) for name, job in jobs.items()}
        return ids | {"flow": str(run.id), "step": str(first.id)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The store, with a server."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "tasks.py").write_text(TASKS)
    found = Site(directory)
    found.create_jobs()
    with found.settings():
        app: Windlass = load_tasks()["app"]
    with run_server(directory, app=app) as server, server.client() as found.web:
        yield found


JOBS = (
    "everything",
    "parent",
    "last",
    "canceled",
    "retry",
    "limited",
    "held",
    "queued",
    "child",
    "step",
)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_the_fields_and_values_of_the_api(site: Site, job: str) -> None:
    shown = site.cli("jobs", "show", f"{{{job}}}")
    path = f"jobs/{{{job}}}"
    assert {name: value for name, value in shown.items() if name not in CLI_ONLY} == site.get(path)
    assert {"attempts": shown["attempts"]} == site.get(f"{path}/attempts")
    nodes = {node["id"]: node for node in site.get(f"{path}/graph")["jobs"]}
    assert shown["dependsOn"] == nodes[shown["id"]]["dependsOn"]
    children = {id_ for id_, node in nodes.items() if shown["id"] in node["dependsOn"]}
    assert set(shown["awaitedBy"]) == children


def test_the_jobs_of_this_test_set_every_field(site: Site) -> None:
    shown = [site.cli("jobs", "show", f"{{{job}}}") for job in JOBS]
    names = {model.alias or name for name, model in JobDetails.model_fields.items()}
    assert all(job.keys() == names for job in shown)
    unset = {name for name in names if not any(job[name] for job in shown)}
    assert unset == NEVER_SET
    assert {model.alias for model in JobView.model_fields.values()} == names - CLI_ONLY


@pytest.mark.parametrize("job", ["everything", "parent", "canceled", "queued"])
def test_events_have_the_fields_and_values_of_the_api(site: Site, job: str) -> None:
    """Also the last event alone: its summary includes all events before it."""
    last = site.get(f"jobs/{{{job}}}")["seq"]
    for after in (0, last - 1):
        printed = site.lines("jobs", "logs", f"{{{job}}}", "--after", str(after))
        events = site.get(f"jobs/{{{job}}}/events?lastEventId={after}&limit=1000")["events"]
        assert printed == events
        assert len(events) == last - after


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("jobs list -n 100", "jobs?limit=100"),
        ("jobs why {limited}", "jobs/{limited}/why"),
        ("jobs why {everything}", "jobs/{everything}/why"),
        ("flows list", "flows"),
        ("flows list -n 1", "flows?limit=1"),
        ("flows show {flow}", "flows/{flow}"),
        ("schedules list", "schedules"),
        ("limits list", "limits"),
        ("keys list", "keys"),
    ],
)
def test_a_command_prints_the_response_of_the_api(site: Site, command: str, path: str) -> None:
    site.cli("limits", "set", "queue:media", "--concurrency", "2", "--rate", "5/m")
    site.cli("keys", "create", "ci", "--role", "viewer")
    printed, response = site.cli(*command.split()), site.get(path)
    if command.startswith("flows show"):  # in order of creation, and newest first
        printed["jobs"].reverse()
    assert printed == response


def keys(value: Any) -> Any:
    """Return the keys of objects, also of nested ones."""
    if isinstance(value, dict):
        return {name: keys(item) for name, item in value.items()}
    return [keys(item) for item in value] if isinstance(value, list) else None


@pytest.mark.parametrize(
    ("command", "path"), [("queues list", "queues"), ("workers list", "workers")]
)
def test_moving_numbers_have_the_keys_of_the_api(site: Site, command: str, path: str) -> None:
    printed, response = site.cli(*command.split()), site.get(path)
    assert keys(printed) == keys(response)
    assert all(printed.values()), "not only empty lists"


@pytest.mark.parametrize(
    ("command", "path", "body"),
    [
        ("jobs submit {new}", "jobs/{new}/submit", {}),
        ("jobs cancel {new}", "jobs/{new}/cancel", {}),
        ("jobs retry {parent}", "jobs/{last}/retry", {}),
        ("jobs resume {everything}", "jobs/{everything}/resume", {}),
        ("queues pause media", "queues/media/pause", {}),
        ("queues resume media", "queues/media/resume", {}),
    ],
)
def test_a_list_of_results_has_the_keys_of_the_api(
    site: Site, command: str, path: str, body: dict[str, Any]
) -> None:
    def add_job() -> None:
        site.ids["new"] = site.post("jobs", task="tasks.add", arguments={"a": 1}, hold=True)["id"]

    add_job()
    [printed] = site.cli(*command.split())
    add_job()
    assert keys(printed) == keys(site.post(path, **body))


@pytest.mark.parametrize(
    ("command", "path", "body"),
    [
        ("enqueue add a=1", "jobs", {"task": "tasks.add", "arguments": {"a": 1}}),
        ("flows cancel {flow}", "flows/{flow}/cancel", {}),
        ("schedules pause nightly", "schedules/nightly/pause", {}),
        ("schedules resume nightly", "schedules/nightly/resume", {}),
        ("schedules run nightly", "schedules/nightly/run", {}),
        ("schedules add often add a=1 --every 5m", "schedules",
         {"name": "other", "task": "tasks.add", "arguments": {"a": 1}, "every": "5m"}),
        ("keys create ci --role viewer", "keys", {"name": "ci", "roles": ["viewer"]}),
    ],
)  # fmt: skip
def test_a_result_has_the_keys_of_the_api(
    site: Site, command: str, path: str, body: dict[str, Any]
) -> None:
    assert keys(site.cli(*command.split())) == keys(site.post(path, **body))


def test_a_refused_job_has_the_keys_of_the_api(site: Site) -> None:
    with site.settings():
        [printed] = CliResult(("jobs", "submit", site.ids["parent"], "--json")).json
    action = {"action": "submit", "filter": {"id": [site.ids["parent"]]}}
    assert [printed] == site.post("jobs/actions", **action)["refused"]


def test_the_json_of_jobs_needs_no_package_of_the_server(site: Site) -> None:
    block = "import sys; sys.modules |= dict.fromkeys(['fastapi', 'starlette', 'uvicorn'])"
    code = f"{block}; from windlass.cli import main; main()"
    words = [sys.executable, "-c", code, "jobs", "show", site.ids["everything"], "--json"]
    with site.settings():
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["lastError"]["errorType"] == "RETRYABLE"
