"""The path of a job from enqueue to settle stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_FILES, MAX_FUNCTIONS = 34, 112  # it takes 110; concurrent calls may be delivered by one more


def test_a_job_passes_through_few_files_and_functions() -> None:
    command = [sys.executable, "-m", "benchmarks.job_path", "--list"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r"(\d+) files, (\d+) functions", done.stdout)
    assert found is not None
    files, functions = map(int, found.groups())
    assert 0 < files <= MAX_FILES, done.stdout
    assert 0 < functions <= MAX_FUNCTIONS, done.stdout
