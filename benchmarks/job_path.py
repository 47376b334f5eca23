"""Counts the files and functions that one job passes through, from `enqueue` until it is settled.

    python -m benchmarks.job_path [--list]

A process enqueues one plain job on SQLite and runs a worker that is already idle. Every function of
the package that is called in between is on the path. Left out are comprehensions, lambdas, and
BACKGROUND: loops that run whether or not there is a job, and the coroutine that runs the fetcher.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import windlass
from windlass import Windlass

PACKAGE = str(Path(windlass.__file__).parent) + "/"
BACKGROUND = frozenset(
    {
        "SqliteEngine.check_other_processes",
        "SqliteStore._check_file",
        "WorkerSlots.release_overdue",
        "stores/sqlite/file_watch.py",
        "worker/loops/cancel_watcher.py",
        "worker/loops/event_writer.py",
        "worker/loops/presence.py",
        "worker/loops/sweeper.py",
        "worker/loops/ticker.py",
        "worker/loops/workspace_cleaner.py",
        "worker/worker.py",
    }
)
SETTLE_TIME = 0.5  # seconds until an idle worker waits for jobs
TIMEOUT = 30.0


class CallRecorder:
    """Records which functions of the package are called, in the order of their first call."""

    def __init__(self) -> None:
        self.active = False
        self.functions: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not self.active or event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        file = code.co_filename.removeprefix(PACKAGE)
        if not {file, code.co_qualname} & BACKGROUND and not code.co_name.startswith("<"):
            self.functions[file, code.co_qualname] = None

    def by_file(self) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        for file, function in self.functions:
            files.setdefault(file, []).append(function)
        return files


def record_job(directory: Path) -> CallRecorder:
    """Run one job and return the recorded calls. Must run in a process without other threads."""
    recorder = CallRecorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    app = Windlass(f"sqlite:///{directory}/jobs.db")

    @app.task(name="greet")
    async def greet(name: str) -> str:
        return f"Hello {name}"

    worker = app.worker()
    running = threading.Thread(target=lambda: asyncio.run(worker.run()))
    running.start()
    try:
        greet.enqueue("first").wait(TIMEOUT)  # opens connections and fills caches
        time.sleep(SETTLE_TIME)
        recorder.active = True
        greet.enqueue("second")
        deadline = time.monotonic() + TIMEOUT
        while sum(worker.settled.values()) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        recorder.active = False
    finally:
        sys.setprofile(None)
        worker.stop()
        running.join(TIMEOUT)
        app.close()
    return recorder


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = record_job(Path(directory)).by_file()
    for file, functions in files.items():
        print(f"{file}: {', '.join(functions)}" if "--list" in sys.argv else file)
    print(f"{len(files)} files, {sum(map(len, files.values()))} functions")


if __name__ == "__main__":
    main()
