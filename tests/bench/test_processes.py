from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.bench.conftest import ROOT

from windlass.bench.measured_process import cpu_seconds, memory
from windlass.bench.peers import PEERS
from windlass.bench.round_config import RoundConfig
from windlass.bench.side import python_command

FILES = "tests.bench.sides.files"


@pytest.mark.parametrize(
    ("module", "arguments", "event"),
    [
        (FILES, ["trickle", "1", "600", "0"], "pausing"),
        (FILES, ["work"], "ready"),
        (PEERS["windlass"], ["work"], "ready"),
    ],
)
def test_a_process_ends_with_the_bench(
    module: str, arguments: list[str], event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    RoundConfig(tmp_path, 2).save()
    child = subprocess.Popen(
        [*python_command(module), *arguments],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert json.loads(child.stdout.readline())["event"] == event
        child.stdin.close()  # as the system does for a bench that dies
        child.wait(30)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_is_weighed() -> None:
    used, held = cpu_seconds(os.getpid()), memory(os.getpid())
    assert used is not None
    assert used > 0
    assert held["rss"] > 1
    assert 0 < held.get("pss", held["rss"]) <= held["rss"]


def test_unavailable_figures_are_missing() -> None:
    missing = 2**22 + 1  # beyond what Linux numbers
    assert cpu_seconds(missing) is None
    assert memory(missing) == {}
