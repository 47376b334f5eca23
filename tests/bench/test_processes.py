from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.bench.conftest import ROOT

from windlass.bench.measured_process import cpu_seconds, memory
from windlass.bench.peers import PEERS
from windlass.bench.round_config import Place
from windlass.bench.side import in_python

FILES = "tests.bench.sides.files"


@pytest.mark.parametrize(
    ("module", "words", "event"),
    [
        (FILES, ["trickle", "1", "600", "0"], "pausing"),
        (FILES, ["work"], "ready"),
        (PEERS["windlass"], ["work"], "ready"),
    ],
)
def test_a_process_ends_when_the_bench_is_gone(
    module: str, words: list[str], event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Place(tmp_path, 2).prepare()
    child = subprocess.Popen(
        [*in_python(module), *words],
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


def test_what_the_system_does_not_tell_is_not_made_up() -> None:
    gone = 2**22 + 1  # beyond what Linux numbers
    assert cpu_seconds(gone) is None
    assert memory(gone) == {}
