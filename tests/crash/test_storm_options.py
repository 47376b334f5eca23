"""`python -m benchmarks.chaos` rejects invalid options before it starts anything."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from benchmarks.chaos.__main__ import main
from benchmarks.chaos.stores import STORES
from benchmarks.chaos.storm_catalog import STANDARD_SIZES, STORMS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--faults kill,quake", "unknown storm 'quake'; choose from kill"),
        ("--store mysql", "invalid choice: 'mysql'"),
        ("--jobs 0", "'0' is not a positive integer"),
        ("--kills many", "'many' is not a positive integer"),
        ("--minutes -1", "minutes must be more than 0"),
        ("--full-size --jobs 7", "--full-size sets all sizes: omit --jobs"),
        ("--part 0.1", "--part needs --full-size"),
        ("--full-size --part 3", "'3' is more than 1"),
        ("--faults kill --connections 9", "--connections needs the storm streams"),
        ("--workers 1", "--workers is 1; it must be from 2 to"),
        ("--json nowhere/figures.json", "the directory does not exist"),
        ("--faults restart", "restart needs --store postgresql, not sqlite"),
        ("--url postgresql://here/", "--url needs --store postgresql, not sqlite"),
        (
            "--store postgresql --url postgresql://here/ --faults restart",
            "restart crashes its server: remove --url",
        ),
    ],
)
def test_an_invalid_option_is_rejected(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments.split())
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_a_storm_for_another_store_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STORES, "elsewhere", STORES["sqlite"])
    with pytest.raises(SystemExit):
        main(["--store", "elsewhere", "--faults", "kill,powercut"])
    assert "powercut needs --store sqlite, not elsewhere" in capsys.readouterr().err


def test_more_connections_than_open_files_are_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(SystemExit):
        main(["--store", "postgresql", "--faults", "streams", "--connections", "5000"])
    assert "need 5200 open files in one process; the limit is 4096" in capsys.readouterr().err


def test_an_existing_run_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kill").mkdir()
    with pytest.raises(SystemExit):
        main(["--faults", "kill", "--keep", str(tmp_path)])
    assert "has a run of kill; use another directory" in capsys.readouterr().err


def test_every_storm_has_a_standard_size() -> None:
    assert STANDARD_SIZES.keys() == STORMS.keys()
    assert all(
        plan.faults is None or STORMS[name].inject is not None
        for name, plan in STANDARD_SIZES.items()
    )


def test_a_run_prints_a_summary_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--faults", "cancel", "--jobs", "40", "--workers", "2", "--seed", "5", "--json"]
    main([*arguments, str(tmp_path / "figures.json"), "--keep", str(tmp_path / "kept")])
    [figures] = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["jobs"], figures["seed"], figures["violations"]) == (40, 5, [])
    assert figures["bound"] == 3 / 40
    reported = capsys.readouterr()
    assert "40 jobs, 0 violations" in reported.out
    assert "cancel: 40 jobs, seed 5" in reported.err
    assert (tmp_path / "kept" / "cancel" / "plan.json").exists()
