"""Outside system that tasks write to: it stores the highest fence and refuses lower ones.

It has one file per job, with a line for each accepted write.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def put(directory: Path, job: str, fence: int) -> bool:
    """Whether the write was accepted: its fence is higher than any before."""
    with (directory / "register" / job).open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if any(int(seen) >= fence for seen in file.read().split()):
            return False
        file.write(b"%d\n" % fence)
        os.fsync(file.fileno())
    return True


def read(directory: Path) -> dict[str, list[int]]:
    """Return the fences of the accepted writes of each job, in order."""
    return {
        path.name: [int(fence) for fence in path.read_bytes().split()]
        for path in (directory / "register").iterdir()
    }
