"""The supervisor with real worker processes and real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from windlass.worker import supervised_process
from windlass.worker import supervisor as module
from windlass.worker.supervisor import RECYCLED, Supervisor, describe_exit

WAIT_TIMEOUT = 30.0
# A fake worker: writes a file at each start, then runs the code of the test.
CHILD = """
import os, signal, sys, time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("supervised_process", MODULE)  # importing all of Windlass is slow
supervised_process = module_from_spec(spec)
spec.loader.exec_module(supervised_process)
pipe, place = sys.argv[-1].removeprefix("--supervised=").split(":")
stops = 0
def on_signal(number, frame):
    global stops
    stops = max(stops, 1)
def on_force():
    global stops
    stops = 2
signal.signal(signal.SIGTERM, on_signal)
supervised_process.watch_supervisor(int(pipe), on_force)
number = len(list(Path(".").glob(f"{place}.*"))) + 1
Path(f"{place}.{number}.tmp").write_text(str(os.getpid()))
Path(f"{place}.{number}.tmp").rename(f"{place}.{number}")
def until(times):
    while stops < times:
        time.sleep(0.01)
""".replace("MODULE", repr(supervised_process.__file__))


class SupervisorUnderTest:
    """A supervisor, and the lines that it reported."""

    def __init__(self, place: Path, code: str, number: int = 2, **settings: Any) -> None:
        self.place = place
        self.lines: list[str] = []
        script = place / "child.py"
        script.write_text(CHILD + textwrap.dedent(code))
        values: dict[str, Any] = {"grace": 5.0, "burst": False} | settings
        self.supervisor = Supervisor(
            [sys.executable, str(script)], number, report=self.lines.append, **values
        )

    async def pid(self, slot: int, start: int = 1) -> int:
        """Return the pid of the slot after this number of starts."""
        path = self.place / f"{slot}.{start}"
        await until(path.exists)
        return int(path.read_text())


@pytest.fixture
def start_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., SupervisorUnderTest]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)
    return lambda code, **settings: SupervisorUnderTest(tmp_path, code, **settings)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, int]) -> AsyncIterator[asyncio.Task[int]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(condition: Callable[[], bool]) -> None:
    """Poll for an effect of another process."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_a_dead_worker_is_restarted_and_reported(start_supervisor: Any) -> None:
    tested = start_supervisor("until(1)")
    async with running(tested.supervisor.run()) as ended:
        first, other = await tested.pid(1), await tested.pid(2)
        assert os.getsid(first) == first  # Ctrl-C in a terminal does not signal it
        os.kill(first, signal.SIGKILL)
        second = await tested.pid(1, start=2)
        assert second != first
        assert f"worker 1 (pid {first}) was killed by SIGKILL after" in tested.lines[0]
        assert "restarting in 0.01 s" in tested.lines[0]
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0
    assert not is_running(second)
    assert not is_running(other)


async def test_the_restart_delay_grows_with_quick_exits_up_to_its_maximum(
    start_supervisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DELAY", 0.04)
    tested = start_supervisor("sys.exit(9) if number < 6 else until(1)", number=1)
    async with running(tested.supervisor.run()) as ended:
        await tested.pid(1, start=6)
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0
    waits = [line.partition("restarting in ")[2] for line in tested.lines if "exited with" in line]
    assert waits == ["0.01 s", "0.02 s", "0.04 s", "0.04 s", "0.04 s"]


async def test_a_long_uptime_resets_the_restart_delay(
    start_supervisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STABLE", 0.0)
    tested = start_supervisor("sys.exit(9) if number < 4 else until(1)", number=1)
    async with running(tested.supervisor.run()) as ended:
        await tested.pid(1, start=4)
        tested.supervisor.stop()
        await asyncio.wait_for(ended, WAIT_TIMEOUT)
    assert [line[-6:] for line in tested.lines if "exited with" in line] == ["0.01 s"] * 3


async def test_a_recycled_worker_is_replaced_without_delay(start_supervisor: Any) -> None:
    tested = start_supervisor(f"sys.exit({RECYCLED}) if number < 3 else until(1)", number=1)
    async with running(tested.supervisor.run()) as ended:
        await tested.pid(1, start=3)
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0
    replaced = [line for line in tested.lines if "is replaced" in line]
    assert len(replaced) == 2
    assert not any("restarting" in line for line in tested.lines)


async def test_a_burst_ends_when_all_workers_exit_with_0(start_supervisor: Any) -> None:
    tested = start_supervisor("sys.exit(9 if (place, number) == ('2', 1) else 0)", burst=True)
    assert await asyncio.wait_for(tested.supervisor.run(), WAIT_TIMEOUT) == 0
    assert len(tested.lines) == 1
    assert "worker 2" in tested.lines[0]


async def test_the_second_stop_forces_the_workers_to_stop(start_supervisor: Any) -> None:
    tested = start_supervisor("until(1); Path(f'stopping{place}').touch(); until(2)")
    async with running(tested.supervisor.run()) as ended:
        await tested.pid(1)
        await tested.pid(2)
        tested.supervisor.stop()
        await until(lambda: all((tested.place / f"stopping{n}").exists() for n in (1, 2)))
        assert not ended.done()
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0


async def test_two_immediate_stops_force_the_workers_to_stop(start_supervisor: Any) -> None:
    tested = start_supervisor("until(2)")
    async with running(tested.supervisor.run()) as ended:
        await tested.pid(1)
        await tested.pid(2)
        tested.supervisor.stop()
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0
    assert not any("killed" in line for line in tested.lines)


async def test_a_signal_from_the_service_manager_is_no_second_stop(start_supervisor: Any) -> None:
    tested = start_supervisor("until(1); Path('stopping').touch(); until(2)", number=1)
    async with running(tested.supervisor.run()) as ended:
        pid = await tested.pid(1)
        tested.supervisor.stop()
        await until((tested.place / "stopping").exists)
        os.kill(pid, signal.SIGTERM)
        done, _ = await asyncio.wait({ended}, timeout=0.5)
        assert not done
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0


async def test_the_third_stop_kills_the_workers_and_their_children(start_supervisor: Any) -> None:
    tested = start_supervisor(
        """
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("child.tmp").write_text(str(child.pid))
        Path("child.tmp").rename("1.2")
        until(99)
        """,
        number=1,
    )
    async with running(tested.supervisor.run()) as ended:
        child = await tested.pid(1, start=2)
        for _ in range(3):
            tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 1
    await until(lambda: not is_running(child))
    assert "did not stop in time and is killed" in tested.lines[-1]


async def test_a_worker_that_exceeds_the_grace_is_killed(
    start_supervisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEFAULT_RELEASE_TIMEOUT", "FORCE_TIMEOUT", "KILL_MARGIN"):
        monkeypatch.setattr(module, name, 0.05)
    tested = start_supervisor("until(99)", number=1, grace=0.05)
    async with running(tested.supervisor.run()) as ended:
        await tested.pid(1)
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 1


async def test_usage_errors_of_all_workers_end_the_supervisor(start_supervisor: Any) -> None:
    tested = start_supervisor("sys.exit(2)")
    assert await asyncio.wait_for(tested.supervisor.run(), WAIT_TIMEOUT) == 2


async def test_a_failed_worker_start_is_retried(start_supervisor: Any) -> None:
    tested = start_supervisor("until(1)", number=1)
    program = tested.place / "python"
    tested.supervisor._command = [str(program), *tested.supervisor._command[1:]]
    async with running(tested.supervisor.run()) as ended:
        await until(lambda: bool(tested.lines))
        assert "not started" in tested.lines[0]
        script = tested.place / "script"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        script.chmod(0o700)
        script.rename(program)
        await tested.pid(1)
        tested.supervisor.stop()
        assert await asyncio.wait_for(ended, WAIT_TIMEOUT) == 0


async def test_no_worker_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD + "until(1)")
    program = f"""
import asyncio
from windlass.worker.supervisor import Supervisor
command = [{sys.executable!r}, "child.py"]
asyncio.run(Supervisor(command, 2, grace=5, burst=False, report=print).run())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path)
    tested = SupervisorUnderTest(tmp_path, "until(1)")
    pids = [await tested.pid(1), await tested.pid(2)]
    process.kill()
    await process.wait()
    await until(lambda: not any(map(is_running, pids)))


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exited"), (3, "exited with code 3"), (-9, "was killed by SIGKILL"),
     (-60, "was killed by signal 60")],
)  # fmt: skip
def test_exit_codes_are_described_in_words(code: int, text: str) -> None:
    assert describe_exit(code) == text
