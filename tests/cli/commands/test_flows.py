"""`windlass flows` and `windlass jobs signal`: workflows and signals from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TASKS, CliResult

from windlass import Windlass, WorkerConfig
from windlass.core.ids import uuid7

RunCli = Callable[..., CliResult]
WAITING = """
@app.task
async def approval(ctx: Context) -> dict:
    return await ctx.await_for("approved")
"""


class Studio:
    """The app of the directory, with a flow: two films, and a third that depends on both."""

    def __init__(self) -> None:
        self._space: dict[str, Any] = {"__name__": "tasks"}
        exec(compile(TASKS + WAITING, "tasks.py", "exec"), self._space)
        self.app: Windlass = self._space["app"]

    def flow(self, *, broken: bool = False) -> tuple[str, list[str]]:
        """Return the id of the flow, and the ids of its jobs."""
        flow = self.app.flow()
        film, fails, add = (self._space[name] for name in ("film", "stepped", "add"))
        first = flow.add(film, "boat")
        second = flow.add(fails) if broken else flow.add(film, "tide")
        last = flow.add(add, 1).after(first, second)
        run = flow.enqueue()
        return str(run.id), [str(node.id) for node in (first, second, last)]

    def approval(self) -> str:
        return str(self._space["approval"].enqueue().id)

    def work(self) -> None:
        self.app.sync.call(
            self.app.worker(WorkerConfig(burst=True, poll_interval=0.02, sweep_interval=0.02)).run()
        )


@pytest.fixture
def studio(project_dir: Path) -> Any:
    made = Studio()
    yield made
    made.app.close()


def test_a_flow_is_shown_with_its_jobs_and_dependencies(run_cli: RunCli, studio: Studio) -> None:
    flow, (first, second, last) = studio.flow()
    shown = run_cli("flows", "show", flow)
    assert shown.code == 0
    assert "3 jobs: 1 created, 2 queued" in shown.out
    [line] = [line for line in shown.out.splitlines() if line.startswith(last[-8:])]
    assert first[-8:] in line
    assert second[-8:] in line
    assert "0%" in shown.out

    studio.work()
    shown = run_cli("flows", "show", flow)
    assert "3 jobs: 3 succeeded" in shown.out
    assert "100%" in shown.out


def test_flows_are_listed_newest_first(run_cli: RunCli, studio: Studio) -> None:
    assert run_cli("migrate").code == 0
    assert "No flows yet" in run_cli("flows", "list").err
    old, _ = studio.flow()
    studio.work()
    new, _ = studio.flow()
    [_, first, second] = run_cli("flows", "list").out.splitlines()
    assert first.split()[:2] == [new, "queued"]
    assert second.split()[:2] == [old, "succeeded"]
    assert "3: 1 created, 2 queued" in first
    assert "100%" in second


def test_a_list_of_flows_is_paged_as_json(run_cli: RunCli, studio: Studio) -> None:
    flows = [studio.flow()[0] for _ in range(3)]
    page = run_cli("flows", "list", "--json", "--limit", "2").json
    rest = run_cli("flows", "list", "--json", "--limit", "2", "--cursor", page["cursor"]).json
    listed = page["flows"] + rest["flows"]
    assert [flow["id"] for flow in listed] == flows[::-1]
    assert (listed[0]["state"], listed[0]["percent"], listed[0]["capped"]) == ("queued", 0, False)
    assert listed[0]["counts"] == {"created": 1, "queued": 2}
    assert (listed[0]["createdAt"][-1], listed[0]["endedAt"], rest["cursor"]) == ("Z", None, None)
    assert "--cursor" in run_cli("flows", "list", "--limit", "2").err


@pytest.mark.parametrize("width", ["30", "79", "80"])
def test_ids_of_flows_are_never_cut(
    run_cli: RunCli, studio: Studio, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    flow, _ = studio.flow()
    monkeypatch.setenv("COLUMNS", width)
    shown = run_cli("flows", "list").out
    assert flow in shown
    assert "2 queued" in shown


def test_a_flow_is_found_by_any_of_its_jobs(run_cli: RunCli, studio: Studio) -> None:
    flow, jobs = studio.flow()
    for job in jobs:
        assert run_cli("flows", "show", job[-8:], "--json").json["id"] == flow
    alone = studio.approval()
    assert "is not part of a flow" in run_cli("flows", "show", alone).err
    unknown = run_cli("flows", "show", str(uuid7()))
    assert (unknown.code, "no flow or job" in unknown.err) == (1, True)


def test_a_flow_is_printed_as_json(run_cli: RunCli, studio: Studio) -> None:
    flow, (first, second, last) = studio.flow(broken=True)
    studio.work()
    facts = run_cli("flows", "show", flow, "--json").json
    assert (facts["id"], facts["state"]) == (flow, "failed")
    assert facts["counts"]["succeeded"] == facts["counts"]["failed"] == 1
    assert facts["endedAt"] is not None
    assert [job["id"] for job in facts["jobs"]] == [first, second, last]
    assert [job["dependsOn"] for job in facts["jobs"]] == [[], [], [first, second]]


def test_watching_a_flow_reports_its_end(run_cli: RunCli, studio: Studio) -> None:
    well, _ = studio.flow()
    ill, _ = studio.flow(broken=True)
    studio.work()
    assert run_cli("flows", "show", well, "--watch").code == 0
    assert run_cli("flows", "show", ill, "--watch").code == 1


def test_a_flow_is_canceled_as_a_whole(run_cli: RunCli, studio: Studio) -> None:
    flow, jobs = studio.flow()
    assert "canceled 3 jobs" in run_cli("flows", "cancel", flow, "--reason", "rain").out
    assert run_cli("flows", "show", flow, "--json").json["counts"]["canceled"] == 3
    assert run_cli("jobs", "show", jobs[0], "--json").json["cancelReason"] == "rain"
    assert run_cli("flows", "cancel", flow, "--json").json == {"id": flow, "jobs": 0}


def test_the_failed_jobs_of_a_flow_are_retried_or_resumed(
    run_cli: RunCli, studio: Studio, project_dir: Path
) -> None:
    flow, _ = studio.flow(broken=True)
    early = run_cli("flows", "retry", flow)
    assert (early.code, "unfinished jobs" in early.err) == (1, True)
    studio.work()
    (project_dir / "fixed").touch()
    assert "resumed as 2 new jobs" in run_cli("flows", "resume", flow).out
    studio.work()
    facts = run_cli("flows", "show", flow, "--json").json
    assert (facts["state"], len(facts["jobs"])) == ("succeeded", 3)
    assert (project_dir / "pieces").read_text() == "x"  # its first step did not run again
    over = run_cli("flows", "retry", flow)
    assert (over.code, "no job to re-run" in over.err) == (1, True)


def test_a_job_is_shown_with_its_dependencies(run_cli: RunCli, studio: Studio) -> None:
    flow, (first, second, last) = studio.flow()
    shown = run_cli("jobs", "show", last).out
    assert f"waiting for 2    {first}, {second}" in shown
    assert f"flow             {flow}" in shown
    assert f"awaited by       {last}" in run_cli("jobs", "show", first).out
    facts = run_cli("jobs", "show", last, "--json").json
    assert (facts["waitingFor"], facts["dependsOn"]) == (2, [first, second])
    studio.work()
    assert f"depends on       {first}, {second}" in run_cli("jobs", "show", last).out


def test_a_signal_is_sent_to_a_waiting_job(run_cli: RunCli, studio: Studio) -> None:
    job = studio.approval()
    shown = run_cli("jobs", "signal", job[-8:], "approved", '{"by": "ada"}')
    assert (shown.code, shown.out.strip()) == (0, f"{job} signal sent, now queued")
    studio.work()
    assert run_cli("jobs", "show", job, "--json").json["result"] == {"by": "ada"}
    late = run_cli("jobs", "signal", job, "again")
    assert (late.code, "cannot be signaled" in late.err) == (1, True)


def test_a_signal_value_that_is_not_json_is_refused(run_cli: RunCli, studio: Studio) -> None:
    job = studio.approval()
    wrong = run_cli("jobs", "signal", job, "approved", "yes")
    assert wrong.code == 2
    assert "quote text twice" in wrong.err
    assert run_cli("jobs", "signal", job, "approved", "true", "--json").json == {
        "id": job,
        "signal": "approved",
        "state": "queued",
    }
