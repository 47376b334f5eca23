from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.peers import SQLITE_PEERS
from benchmarks.peers.measured_process import cpu_seconds, memory
from benchmarks.peers.queue_adapter import ROOT, python_command
from benchmarks.peers.round_config import RoundConfig

FILE_QUEUE = "tests.benchmarks.adapters.file_queue"


@pytest.mark.parametrize(
    ("module", "arguments", "event"),
    [
        (FILE_QUEUE, ["enqueue_spaced", "1", "600", "0"], "pausing"),
        (FILE_QUEUE, ["work"], "ready"),
        (SQLITE_PEERS["windlass"], ["work"], "ready"),
    ],
)
def test_a_child_process_ends_when_the_bench_dies(
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
        child.stdin.close()  # as the kernel does when the bench dies
        child.wait(30)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_cpu_time_and_memory_are_read() -> None:
    cpu, used = cpu_seconds(os.getpid()), memory(os.getpid())
    assert cpu is not None
    assert cpu > 0
    assert used["rss"] > 1
    assert 0 < used.get("pss", used["rss"]) <= used["rss"]


def test_unavailable_figures_are_missing() -> None:
    missing = 2**22 + 1  # beyond what Linux numbers
    assert cpu_seconds(missing) is None
    assert memory(missing) == {}
