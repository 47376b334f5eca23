"""The checker reports each single change of the evidence of a correct storm."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.chaos.checks.checker import check
from benchmarks.chaos.checks.evidence import Evidence, gather
from benchmarks.chaos.checks.rescue_times import rescue_times
from benchmarks.chaos.ledger import STORM_VARIABLE, note
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.processes.fleet import leftover_processes
from benchmarks.chaos.report import markdown, storm_result
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow

MIXED = Storm(
    name="mixed",
    mix=TaskMix(tasks={"plain": 4, "stepped": 1}, cancels=0.2, once=("killer",)),
    lease=1.0,
    producers=1,
)
SUCCEEDED = "(SELECT min(n) FROM windlass_job WHERE state = 'succeeded' AND cancel_by IS NULL)"
CANCELED = "(SELECT min(n) FROM windlass_job WHERE state = 'canceled')"
KILLER = "(SELECT n FROM windlass_job WHERE state = 'failed')"
DUPLICATE = f"""
    DROP INDEX windlass_job_id;
    CREATE TEMP TABLE one AS SELECT * FROM windlass_job WHERE n = {SUCCEEDED};
    UPDATE one SET n = n + 100000, id = {{id}};
    INSERT INTO windlass_job SELECT * FROM one;
"""


@pytest.fixture(scope="module")
def correct_storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("storm") / "mixed"
    assert run(MIXED, Plan(jobs=60, seconds=30, seed=7, workers=2), directory).violations == []
    return directory


@pytest.fixture
def directory(correct_storm: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(correct_storm, tmp_path / "storm"))


def corrupt(directory: Path, *statements: str) -> None:
    with closing(sqlite3.connect(directory / "jobs.db")) as connection:
        for statement in statements:
            connection.executescript(statement)


def problems(directory: Path) -> str:
    return "\n".join(check(gather(directory)))


def job_at(directory: Path, n: str) -> str:
    """The id of the job with that number."""
    with closing(sqlite3.connect(directory / "jobs.db")) as connection:
        number = connection.execute(f"SELECT {n}").fetchone()[0]
    return next(str(row["id"]) for row in gather(directory).jobs if row["n"] == number)


def set_job(what: str, n: str = SUCCEEDED) -> str:
    return f"UPDATE windlass_job SET {what} WHERE n = {n}"


LOST_LEASE = "WHERE type = 'attempt' AND data ->> 'outcome' = 'crash'"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"DELETE FROM windlass_job WHERE n = {SUCCEEDED}", "was acknowledged and is lost"),
        (DUPLICATE.format(id="id"), "exists 2 times"),
        (DUPLICATE.format(id="randomblob(16)"), "was never enqueued"),
        (set_job("state = 'running'"), "is still running"),
        (set_job("ended_at = NULL"), "without ended_at"),
        (set_job("lease_until = 1"), "with a lease"),
        (set_job("state = 'failed'"), r"\) ended failed"),
        (set_job("state = 'canceled'"), "was canceled without a request"),
        (set_job("state = 'succeeded'", KILLER), r"\(killer\) ended succeeded"),
        ("UPDATE windlass_rollup SET count = count + 1", "ends were counted as succeeded"),
        (set_job("result = CAST('{\"fence\": 9}' AS BLOB)"), "the result of job"),
        (set_job("result = CAST('1' AS BLOB)", CANCELED), "is canceled and has a result"),
        (set_job("fence = fence + 1"), "is at attempt"),
        (set_job("attempt = attempt + 1"), "is at attempt"),
        (f"UPDATE windlass_log SET at = at + 1000000000 {LOST_LEASE}", "had not ended when"),
        (
            "UPDATE windlass_log SET data = json_set(data, '$.started_at', at) " + LOST_LEASE,
            "before its lease expired",
        ),
        (set_job("created_at = created_at - 60000000"), "created_at is off by -"),
        (set_job("updated_at = updated_at + 3600000000"), "not by the clock of the store"),
        ("UPDATE windlass_log SET at = at + 3600000000 WHERE type <> 'attempt'", "time of event"),
        (set_job("seq = seq + 1"), "the log of job"),
        ("DELETE FROM windlass_log WHERE type <> 'attempt'", "the log of job"),
        ("DELETE FROM windlass_log WHERE type = 'attempt'", "ends were counted as retrying"),
        (set_job("crash_count = 4", KILLER), "its cap is 3"),
        (set_job("crash_count = 2", KILLER), "its cap is 3"),
        (set_job("crash_count = crash_count + 1"), "its log has"),
        (set_job("retry_count = 1"), "its task raised none"),
        ("UPDATE windlass_step SET value = CAST('0' AS BLOB)", "was stored by fence 0"),
        (set_job("state = 'succeeded'", CANCELED), "the job ended succeeded"),
        (set_job("cancel_at = 1"), "succeeded over an accepted cancel"),
    ],
)
def test_a_wrong_value_in_the_tables_is_detected(
    directory: Path, statement: str, message: str
) -> None:
    corrupt(directory, statement)
    with pytest.raises(AssertionError, match=message):
        assert problems(directory) == ""


def note_task(directory: Path, job: str, **facts: object) -> None:
    note("task", directory, job=job, pid=1, **facts)


def start_with_a_lower_fence(directory: Path, job: str) -> None:
    note_task(directory, job, fence=0, attempt=0, phase="start")


def start_again(directory: Path, job: str) -> None:
    note_task(directory, job, fence=1, attempt=1, phase="start")


def start_with_an_unknown_fence(directory: Path, job: str) -> None:
    note_task(directory, job, fence=9, attempt=9, phase="start")


def end_again(directory: Path, job: str) -> None:
    note_task(directory, job, fence=1, attempt=1, phase="end", applied=False)


def claim_an_accepted_write(directory: Path, job: str) -> None:
    note_task(directory, job, fence=8, attempt=1, phase="end", applied=True)


def write_the_same_effect_twice(directory: Path, job: str) -> None:
    file = directory / "register" / job
    file.write_bytes(file.read_bytes() * 2)


def write_an_effect_of_a_later_fence(directory: Path, job: str) -> None:
    (directory / "register" / job).write_text("1\n7\n")


def lose_an_effect(directory: Path, job: str) -> None:
    (directory / "register" / job).unlink()


def leave_a_workspace(directory: Path, job: str) -> None:
    (directory / "data" / "temp" / job).mkdir(parents=True)


def refuse_the_cancel(directory: Path, job: str) -> None:
    """Of a job that was canceled."""
    note("producer", directory, canceled=job_at(directory, CANCELED), answer="conflict")


def accept_a_cancel_of_a_success(directory: Path, job: str) -> None:
    note("producer", directory, canceled=job, answer="running")


def run_after_the_retry(directory: Path, job: str) -> None:
    """After its process had died and the next attempt had started."""
    note_task(directory, job_at(directory, KILLER), fence=2, attempt=2, phase="step", step="late")


def repeat_a_step(directory: Path, job: str) -> None:
    evidence = gather(directory)
    [kept, *_] = [row for row in evidence.jobs if evidence.steps.get(row["n"])]
    note_task(directory, kept["id"], fence=9, attempt=9, phase="step", step="first")


def settle(directory: Path, job: str, fence: int, trigger: str, status: str) -> None:
    answers = [(job, fence, trigger, status, "succeeded")]
    note("settle", directory, results=answers, pid=1)


def apply_a_late_settle(directory: Path, job: str) -> None:
    settle(directory, crashed_job(directory), 1, "succeed", "applied")


def apply_another_settle(directory: Path, job: str) -> None:
    settle(directory, job, 1, "release", "applied")


def apply_a_settle_of_an_unknown_fence(directory: Path, job: str) -> None:
    settle(directory, job, 7, "succeed", "applied")


def refuse_the_lease_holder(directory: Path, job: str) -> None:
    settle(directory, job, 1, "succeed", "stale")


def return_a_conflict(directory: Path, job: str) -> None:
    settle(directory, job, 1, "succeed", "conflict")


def return_busy(directory: Path, job: str) -> None:
    settle(directory, job, 1, "succeed", "busy")


def crashed_job(directory: Path) -> str:
    """One whose first lease was lost."""
    evidence = gather(directory)
    return next(
        str(row["id"])
        for row in evidence.jobs
        if [past["data"]["outcome"] for past in evidence.attempts(row)][:1] == ["crash"]
    )


def forbid_crashes(directory: Path, job: str) -> None:
    plan = json.loads((directory / "plan.json").read_text())
    (directory / "plan.json").write_text(json.dumps(plan | {"may_lose_attempts": False}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (start_with_a_lower_fence, "started with fence 0 after 1"),
        (start_again, "started twice with"),
        (start_with_an_unknown_fence, "with 9 over 1"),
        (end_again, "did not end once in the ledger"),
        (claim_an_accepted_write, "received an accepted write"),
        (write_the_same_effect_twice, "the register accepted"),
        (write_an_effect_of_a_later_fence, "the register has"),
        (lose_an_effect, "the register has"),
        (leave_a_workspace, "its workspace still exists"),
        (refuse_the_cancel, "was refused, but the job was canceled"),
        (accept_a_cancel_of_a_success, "returned running; the job ended succeeded"),
        (run_after_the_retry, "still ran after retry"),
        (repeat_a_step, "was stored by fence"),
        (apply_a_late_settle, "was applied; the attempt ended by crash"),
        (apply_another_settle, "was applied; the attempt ended by succeed"),
        (apply_a_settle_of_an_unknown_fence, "was applied; the attempt ended by None"),
        (refuse_the_lease_holder, "was refused as stale; the attempt ended by succeed"),
        (return_a_conflict, "returned conflict"),
        (return_busy, "returned busy"),
        (forbid_crashes, "in a storm that must not cost attempts"),
    ],
)
def test_a_contradiction_of_the_ledgers_is_detected(
    directory: Path, change: Callable[[Path, str], None], message: str
) -> None:
    single_attempt = "attempt = 1 AND cancel_by IS NULL"
    first_attempt = f"(SELECT min(n) FROM windlass_job WHERE n >= {SUCCEEDED} AND {single_attempt})"
    change(directory, job_at(directory, first_attempt))
    with pytest.raises(AssertionError, match=message):
        assert problems(directory) == ""


def test_a_refused_settle_with_a_lost_lease_is_correct(directory: Path) -> None:
    settle(directory, crashed_job(directory), 1, "succeed", "stale")
    assert problems(directory) == ""


def test_a_busy_settle_is_correct_on_postgresql_if_it_is_repeated(directory: Path) -> None:
    def problems_of(job: str, fence: int, trigger: str) -> list[str]:
        settle(directory, job, fence, trigger, "busy")
        evidence = gather(directory)
        return check(replace(evidence, plan={**evidence.plan, "store": "postgresql"}))

    ended = next(message for message in gather(directory).settles if message["status"] == "applied")
    assert problems_of(ended["job"], ended["fence"], ended["trigger"]) == []
    assert problems_of(crashed_job(directory), 1, "succeed") == []
    [message] = problems_of(ended["job"], ended["fence"], "release")
    assert f"returned busy; the attempt ended by {ended['trigger']}" in message


def test_a_truncated_ledger_line_is_ignored(directory: Path) -> None:
    before = len(gather(directory).task_lines)
    (directory / "ledger" / "task-1-1.jsonl").write_text('{"job": "half a li')
    assert len(gather(directory).task_lines) == before
    assert problems(directory) == ""


def test_a_leftover_process_is_found(directory: Path) -> None:
    stray = subprocess.Popen(["sleep", "60"], env=os.environ | {STORM_VARIABLE: str(directory)})
    try:
        deadline = time.monotonic() + 30
        while leftover_processes(directory, timeout=0) != [
            stray.pid
        ]:  # until it is a program of its own
            assert time.monotonic() < deadline
    finally:
        stray.kill()
        stray.wait()
    assert leftover_processes(directory) == []


def test_the_report_has_violations_or_a_statistical_bound(directory: Path) -> None:
    evidence: Evidence = gather(directory)
    correct, broken = (
        storm_result(evidence, [], 1.0),
        storm_result(evidence, ["job 7 is lost"], 1.0),
    )
    assert f"{3 / correct.jobs:.1e}" in markdown([correct])
    assert json.loads(json.dumps(correct.fields()))["bound"] == 3 / correct.jobs
    assert broken.fields()["bound"] is None
    assert "0 violations" in markdown([correct])
    assert "- mixed: job 7 is lost" in markdown([correct, broken])
    assert "3/n, 95" not in markdown([correct, broken])


def lost(worker: int, at: float) -> dict[str, object]:
    """An attempt that began at 0 and was taken back then, in seconds."""
    data = {"outcome": "crash", "worker": f"host-{worker}-f00", "started_at": 0}
    return {"type": "attempt", "at": round(at * 1e6), "data": data}


def test_the_report_has_the_rescue_times(tmp_path: Path) -> None:
    """With leases of 1.5 s: one in time, one late, and one without a running sweeper."""
    moments = [("SIGKILL", 1, 0.5), ("SIGKILL", 2, 0.5), ("SIGKILL", 3, 9.0)]
    moments += [("SIGKILL of all", 0, 9.1), ("SIGKILL of all", 0, 10.0)]
    evidence = Evidence(
        directory=tmp_path,
        plan={"lease": 1.5},
        faults=[{"fault": name, "pid": pid, "at": at * 1e6} for name, pid, at in moments],
        jobs=[{"id": str(n), "n": n, "started_at": 20e6} for n in (1, 2, 3)],
        log={n: [lost(n, at)] for n, at in ((1, 2.5), (2, 4.5), (3, 14.0))},
        producer_lines=[],
        task_lines=[],
        settle_lines=[],
        register={},
        steps={},
        outcomes={},
        leftovers=set(),
        now=0,
    )
    found = rescue_times(evidence)
    assert found is not None
    assert (found.number, found.late, found.longest, found.claimed) == (2, 1, 4.0, 19.5)
    assert (found.unswept, found.unswept_longest) == (1, 5.0)


def test_the_checker_imports_no_windlass_code() -> None:
    checker = "benchmarks.chaos.checks.checker"
    code = f"import sys, {checker}; print([m for m in sys.modules if 'windl' in m])"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
