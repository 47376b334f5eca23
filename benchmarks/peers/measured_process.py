"""A measured process: start, events, CPU and memory use, and end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any, Self

from benchmarks.peers.plan import BenchError
from benchmarks.peers.queue_adapter import ROOT

PROC = Path("/proc")
STOP_TIMEOUT = 15.0  # seconds for the exit of a producer
MB = 1_000_000
CHECK_EVERY = 0.25  # seconds between two checks of the other processes


class MeasuredProcess:
    """One process of a measured system, used as a context manager that kills it at the end.

    A worker is not stopped gracefully: its ledger has the results, and its queue is deleted.
    """

    def __init__(self, directory: Path, program: Sequence[str], *arguments: str) -> None:
        self._role = " ".join(arguments)
        self._error_file = directory / f"{arguments[0]}-{time.monotonic_ns()}.err"
        self._events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        # Settings of the user are not measured: the defaults apply.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDLASS_")}
        paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)  # adapters are modules of this clone
        with self._error_file.open("wb") as error_file:
            self._process = subprocess.Popen(
                [*program, *arguments],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,  # its end-of-file stops the child when the bench ends
                stdout=subprocess.PIPE,
                stderr=error_file,
                start_new_session=True,  # Ctrl-C in a terminal stops only the bench
            )
        assert self._process.stdout is not None
        Thread(target=self._read_events, args=(self._process.stdout,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read_events(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # output of a library is ignored
                    message = json.loads(line)
                    if isinstance(message, dict):
                        self._events.put(message)
        self._events.put(None)

    def expect(
        self, event: str, timeout: float, others: Sequence[MeasuredProcess] = ()
    ) -> Mapping[str, Any]:
        """Wait for this event. Raise if the process or one of `others` ends first."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                message = self._events.get(timeout=min(left, CHECK_EVERY))
                if message is None:
                    raise self._ended(event)
                if message.get("event") == event:
                    return message
            for other in others:
                other.check(event)
        raise BenchError(f"{self._role!r} sent no {event!r} within {timeout:,.0f} s")

    def start(self) -> None:
        """Send the start signal, which workers wait for."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `expect` reports its end
            self._process.stdin.write(b"g")
            self._process.stdin.flush()

    def check(self, event: str) -> None:
        """Raise if the process has ended before this event."""
        if self._process.poll() is not None:
            raise self._ended(event)

    def _ended(self, event: str) -> BenchError:
        return BenchError(f"{self._role!r} ended before {event!r}: {self._last_error()}")

    def wait(self) -> None:
        """Wait for the exit of the process."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT)

    def _last_error(self) -> str:
        lines = self._error_file.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.wait()}"


def cpu_seconds(pid: int | None) -> float | None:
    """Return the CPU seconds of the process and its descendants, or None if unavailable."""
    if pid is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = 0
        for member in _process_tree(pid):
            fields = (PROC / str(member) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime, stime
        return ticks / os.sysconf("SC_CLK_TCK")
    return None


def memory(pid: int) -> dict[str, float]:
    """Return the MB of the process and its descendants: `rss` and proportional `pss`."""
    totals: dict[str, float] = {}
    for member in _process_tree(pid):
        for file, name, key in (("status", "VmRSS", "rss"), ("smaps_rollup", "Pss", "pss")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                lines = (PROC / str(member) / file).read_text().splitlines()
                kib = next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
                totals[key] = totals.get(key, 0.0) + kib * 1024 / MB
    return totals


def _process_tree(pid: int) -> list[int]:
    found = [pid]
    for member in found:
        with contextlib.suppress(OSError):
            for thread in (PROC / str(member) / "task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found
