"""`windlass check`, `migrate`, `config`, shell completion, help, and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import windlass
from windlass import Windlass
from windlass.core.clock import SECOND, SystemClock


class FastClock:
    """The clock of a machine that runs a day ahead."""

    def now(self) -> int:
        return SystemClock().now() + 86_400 * SECOND


def verdicts(answer: Any) -> dict[str, str]:
    return {one["check"]: one["verdict"] for one in answer.json["findings"]}


def test_a_healthy_store_has_no_problems(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    answer = run_cli("check", "--json")
    assert answer.code == 0
    assert answer.json["ok"] is True
    assert set(verdicts(answer).values()) == {"ok"}
    assert set(verdicts(answer)) >= {"settings", "durability", "driver", "disk", "store", "schema",
                                     "clock"}  # fmt: skip
    assert "✓ store" in run_cli("check").out


def test_check_creates_no_file(run_cli: Any, project_dir: Path) -> None:
    answer = run_cli("check")
    assert answer.code == 0
    assert "windlass migrate" in answer.out
    assert not (project_dir / "windlass.db").exists()


def test_a_missing_directory_is_an_error_with_the_command_to_create_it(
    run_cli: Any, project_dir: Path
) -> None:
    answer = run_cli("check", "--url", f"sqlite:///{project_dir}/no/jobs.db")
    assert answer.code == 3
    assert f"mkdir -p {project_dir}/no" in answer.out


def test_a_file_that_is_no_database_is_an_error(run_cli: Any, project_dir: Path) -> None:
    (project_dir / "windlass.db").write_text("this is not a database" * 100)
    answer = run_cli("check")
    assert answer.code == 3
    assert "is corrupt or not a SQLite database" in answer.out


def test_weak_durability_is_reported(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    off = run_cli("check", "--json", "--url", "sqlite:///windlass.db?durability=off")
    assert off.code == 1
    assert verdicts(off)["durability"] == "error"


def test_a_clock_that_was_set_back_is_reported(run_cli: Any, project_dir: Path) -> None:
    app = Windlass(clock=FastClock())

    @app.task
    def nothing() -> None: ...

    nothing.enqueue()
    app.close()
    answer = run_cli("check")
    assert answer.code == 1
    assert "in the future" in answer.out


def test_an_app_that_cannot_be_loaded_is_a_finding(run_cli: Any) -> None:
    answer = run_cli("check", "-A", "tasks:nothing")
    assert answer.code == 1
    assert "has no 'nothing'" in answer.out


def test_migrate_creates_the_store_and_may_be_repeated(run_cli: Any, project_dir: Path) -> None:
    first = run_cli("migrate")
    assert first.code == 0
    assert "applied 0001_jobs" in first.out
    assert (project_dir / "windlass.db").exists()
    assert "up to date" in run_cli("migrate").out
    assert run_cli("migrate", "--json").json == {"applied": []}


def test_the_sql_of_a_migration_is_printed_and_not_run(run_cli: Any, project_dir: Path) -> None:
    answer = run_cli("migrate", "--print")
    assert answer.code == 0
    assert not (project_dir / "windlass.db").exists()
    file = apsw.Connection(str(project_dir / "windlass.db"))
    file.execute(answer.out)
    file.close()
    assert run_cli("migrate", "--json").json == {"applied": []}  # like after `migrate`
    again = run_cli("migrate", "--print")
    assert (again.out, again.code) == ("", 0)
    assert "is up to date; nothing to run" in again.err


def test_the_migration_script_keeps_tables_of_the_application(
    run_cli: Any, project_dir: Path
) -> None:
    file = apsw.Connection(str(project_dir / "windlass.db"))
    file.execute("CREATE TABLE mine (x)")
    file.execute(run_cli("migrate", "--print").out)
    file.close()
    assert run_cli("jobs", "list").code == 0
    assert run_cli("migrate", "--print", "--json").json == {"sql": ""}


def test_no_migration_script_is_printed_for_an_invalid_database(
    run_cli: Any, project_dir: Path
) -> None:
    (project_dir / "windlass.db").write_text("this is not a database" * 100)
    answer = run_cli("migrate", "--print")
    assert answer.code == 3
    assert "is corrupt or not a SQLite database" in answer.err


def test_a_paused_queue_is_listed_as_paused_until_resumed(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1, run=False)
    assert run_cli("queues", "pause", "default", "media").code == 0
    found = {one["name"]: one for one in run_cli("queues", "list", "--json").json["queues"]}
    assert [found[name]["paused"] for name in ("default", "media")] == [True, True]
    assert found["default"]["counts"]["queued"] == 1
    assert run_cli("queues", "list").out.count("paused") == 2
    assert run_cli("queues", "resume", "default", "media").code == 0
    assert "paused" not in run_cli("queues", "list").out


def test_each_setting_is_shown_with_its_origin(
    run_cli: Any, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project_dir / "windlass.toml").write_text('concurrency = 4\nlease = "1m"\n')
    monkeypatch.setenv("WINDLASS_LEASE", "2m")
    found = run_cli("config", "show", "--url", "sqlite:///x.db", "--json").json
    assert found["url"] == {"value": "sqlite:///x.db", "origin": "argument"}
    assert found["lease"] == {"value": 120.0, "origin": "environment WINDLASS_LEASE"}
    assert found["concurrency"] == {"value": 4, "origin": str(project_dir / "windlass.toml")}
    assert found["grace"] == {"value": 10.0, "origin": "default"}
    assert found["app"] == {"value": None, "origin": "unset"}
    shown = run_cli("config", "show").out
    assert "concurrency    4  ← " in shown
    assert "keep_failed    90d  ← default" in shown


def test_an_invalid_setting_is_a_usage_error_that_names_the_file(
    run_cli: Any, project_dir: Path
) -> None:
    (project_dir / "windlass.toml").write_text("concurency = 4\n")
    answer = run_cli("jobs", "list")
    assert answer.code == 2
    assert "windlass.toml has unknown settings: concurency; valid are url" in answer.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["migrate"], 0),
        (["jobs", "why", "01a1e1cc-0000-7000-8000-000000000000"], 1),
        (["jobs", "list", "--limit", "0"], 2),
        (["jobs", "list", "--url", "sqlite:///a#b.db"], 2),
        (["jobs", "list", "--url", "sqlite:////nowhere/at/all.db"], 3),
    ],
)
def test_exit_codes_match_the_documentation(run_cli: Any, words: list[str], code: int) -> None:
    run_cli("migrate")
    assert run_cli(*words).code == code


def test_an_invalid_url_is_a_finding(run_cli: Any) -> None:
    answer = run_cli("check", "--url", "sqlite:///a#b.db")
    assert answer.code == 1
    assert "in a file name, write it as %23" in answer.out


def completion_environment(words: str) -> dict[str, str]:
    """The environment that bash sets for completion of the last word."""
    return {
        "_WINDLASS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("windlass jo", "jobs"),
        ("windlass jobs w", "why"),
        ("windlass worker --max-m", "--max-memory"),
        ("windlass jobs list --state ret", "retrying"),
    ],
)
def test_shell_completion_has_commands_and_values(run_cli: Any, typed: str, wanted: str) -> None:
    done = run_cli(**completion_environment(typed))
    assert wanted in done.out.split(), (done.out, done.err)


def test_the_installed_program_prints_shell_completion() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "windlass"],
        env=os.environ | completion_environment("windlass jo"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "jobs" in done.stdout.split(), (done.stdout, done.stderr)


def test_internal_options_are_not_in_the_help(run_cli: Any) -> None:
    answer = run_cli("worker", "--help")
    assert answer.code == 0
    assert "--processes" in answer.out
    assert "supervised" not in answer.out


def test_the_version_is_printed(run_cli: Any) -> None:
    answer = run_cli("--version")
    assert (answer.code, answer.out.strip()) == (0, f"windlass {windlass.__version__}")


def test_help_names_the_exit_codes(run_cli: Any) -> None:
    answer = run_cli("--help")
    assert answer.code == 0
    for part in ("Exit codes: 0 success", "3 store unavailable", "--install-completion"):
        assert part in " ".join(answer.out.split())  # independent of line breaks


def test_the_help_cuts_no_option_in_a_narrow_terminal(run_process: Any) -> None:
    help_text = run_process("worker", "--help", COLUMNS="40").stdout
    assert "--concurrency" in help_text
    assert "…" not in help_text


def test_an_unknown_command_is_a_usage_error(run_cli: Any) -> None:
    assert run_cli("jbos").code == 2
    assert run_cli("jobs", "list", "--state", "asleep").code == 2
