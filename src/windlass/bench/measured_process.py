"""A process under measure: started, listened to, weighed, and surely ended."""

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

from windlass.core.errors import WindlassError

PROC = Path("/proc")
STOPPING = 15.0  # seconds that a producer has to end once it is done
MB = 1_000_000
GLANCE = 0.25  # seconds between two looks at whether the others still live


class BenchError(WindlassError):
    """A side could not be measured; the others can."""


class Child:
    """One process of a side; to be used as a block, at whose end it is gone.

    Nobody asks a worker to end: what it did is in its ledger, and its queue is thrown away.
    """

    def __init__(self, directory: Path, program: Sequence[str], *words: str) -> None:
        self._what = " ".join(words)
        self._complaints = directory / f"{words[0]}-{time.monotonic_ns()}.err"
        self._said: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        # What a user has set for Windlass is not to be measured: the defaults are.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDLASS_")}
        with self._complaints.open("wb") as complaints:
            self._process = subprocess.Popen(  # noqa: S603 - a program of our own
                [*program, *words],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,  # by its end the child learns of ours, however it comes
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,  # Ctrl-C in a terminal is for the bench alone
            )
        assert self._process.stdout is not None
        Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

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

    def _listen(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # a library that prints says nothing to us
                    said = json.loads(line)
                    if isinstance(said, dict):
                        self._said.put(said)
        self._said.put(None)

    def expect(self, event: str, timeout: float, beside: Sequence[Child] = ()) -> Mapping[str, Any]:
        """Wait until it tells this; in vain, if one of those beside it ends meanwhile."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                said = self._said.get(timeout=min(left, GLANCE))
                if said is None:
                    raise self._ended(event)
                if said.get("event") == event:
                    return said
            for other in beside:
                other.check(event)
        raise BenchError(f"{self._what!r} did not come to be {event} within {timeout:,.0f} s")

    def go(self) -> None:
        """Let the worker begin; it waits for this."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is told of where it is waited for
            self._process.stdin.write(b"g")
            self._process.stdin.flush()

    def check(self, event: str) -> None:
        """It is still there, as it must be until this comes to be."""
        if self._process.poll() is not None:
            raise self._ended(event)

    def _ended(self, event: str) -> BenchError:
        return BenchError(f"{self._what!r} ended before it was {event}: {self._last_words()}")

    def wait(self) -> None:
        """For its own end, which comes soon."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOPPING)

    def _last_words(self) -> str:
        lines = self._complaints.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.wait()}"


def cpu_seconds(pid: int | None) -> float | None:
    """What the process and its descendants have used; None where the system does not tell."""
    if pid is None:
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = 0
        for one in _family(pid):
            fields = (PROC / str(one) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime, stime
        return ticks / os.sysconf("SC_CLK_TCK")
    return None


def memory(pid: int) -> dict[str, float]:
    """MB held by the process and its descendants: `rss`, and `pss` (shared pages by share)."""
    totals: dict[str, float] = {}
    for one in _family(pid):
        for file, name, key in (("status", "VmRSS", "rss"), ("smaps_rollup", "Pss", "pss")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                lines = (PROC / str(one) / file).read_text().splitlines()
                kib = next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
                totals[key] = totals.get(key, 0.0) + kib * 1024 / MB
    return totals


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in (PROC / str(one) / "task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found
