"""Several worker processes kept alive: real processes, real signals."""

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
from windlass.worker.supervisor import RECYCLED, Supervisor, how

PATIENCE = 30.0
# A worker without the work: it tells each start, and does what the test wrote for it.
CHILD = """
import os, signal, sys, time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
spec = spec_from_file_location("lifeline", LIFELINE)  # alone: the whole of Windlass takes long
lifeline = module_from_spec(spec)
spec.loader.exec_module(lifeline)
pipe, place = sys.argv[-1].removeprefix("--supervised=").split(":")
asked = 0
def on_signal(number, frame):
    global asked
    asked = max(asked, 1)
def at_once():
    global asked
    asked = 2
signal.signal(signal.SIGTERM, on_signal)
lifeline.follow(int(pipe), at_once)
number = len(list(Path(".").glob(f"{place}.*"))) + 1
Path(f"{place}.{number}.tmp").write_text(str(os.getpid()))
Path(f"{place}.{number}.tmp").rename(f"{place}.{number}")
def until(times):
    while asked < times:
        time.sleep(0.01)
""".replace("LIFELINE", repr(supervised_process.__file__))


class Kept:
    """A supervisor under test, and what it said."""

    def __init__(self, place: Path, does: str, number: int = 2, **over: Any) -> None:
        self.place = place
        self.said: list[str] = []
        script = place / "child.py"
        script.write_text(CHILD + textwrap.dedent(does))
        values: dict[str, Any] = {"grace": 5.0, "burst": False} | over
        self.supervisor = Supervisor(
            [sys.executable, str(script)], number, say=self.said.append, **values
        )

    async def pid(self, slot: int, start: int = 1) -> int:
        """The process of this slot, once it has started so many times."""
        path = self.place / f"{slot}.{start}"
        await until(path.exists)
        return int(path.read_text())


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kept]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)
    return lambda does, **over: Kept(tmp_path, does, **over)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, int]) -> AsyncIterator[asyncio.Task[int]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(wanted: Callable[[], bool]) -> None:
    """For what another process does there is nothing to await but its trace."""
    async with asyncio.timeout(PATIENCE):
        while not wanted():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_what_dies_is_started_again_and_told(keep: Any) -> None:
    kept = keep("until(1)")
    async with running(kept.supervisor.run()) as ended:
        first, other = await kept.pid(1), await kept.pid(2)
        assert os.getsid(first) == first  # Ctrl-C in a terminal does not reach it twice
        os.kill(first, signal.SIGKILL)
        second = await kept.pid(1, start=2)
        assert second != first
        assert f"worker 1 (pid {first}) was killed by SIGKILL after" in kept.said[0]
        assert "another starts in 0.01 s" in kept.said[0]
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0
    assert not lives(second)
    assert not lives(other)


async def test_the_delay_grows_with_quick_deaths_up_to_its_cap(
    keep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DELAY", 0.04)
    kept = keep("sys.exit(9) if number < 6 else until(1)", number=1)
    async with running(kept.supervisor.run()) as ended:
        await kept.pid(1, start=6)
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0
    waits = [line.partition("another starts in ")[2] for line in kept.said if "ended with" in line]
    assert waits == ["0.01 s", "0.02 s", "0.04 s", "0.04 s", "0.04 s"]


async def test_after_a_long_life_the_delay_starts_small_again(
    keep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED", 0.0)
    kept = keep("sys.exit(9) if number < 4 else until(1)", number=1)
    async with running(kept.supervisor.run()) as ended:
        await kept.pid(1, start=4)
        kept.supervisor.stop()
        await asyncio.wait_for(ended, PATIENCE)
    assert [line[-6:] for line in kept.said if "ended with" in line] == ["0.01 s"] * 3


async def test_one_that_wants_to_be_replaced_is_no_death(keep: Any) -> None:
    kept = keep(f"sys.exit({RECYCLED}) if number < 3 else until(1)", number=1)
    async with running(kept.supervisor.run()) as ended:
        await kept.pid(1, start=3)
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0
    replaced = [line for line in kept.said if "is replaced by a fresh one" in line]
    assert len(replaced) == 2
    assert not any("starts in" in line for line in kept.said)


async def test_a_burst_ends_when_all_have_nothing_left_to_do(keep: Any) -> None:
    kept = keep("sys.exit(9 if (place, number) == ('2', 1) else 0)", burst=True)
    assert await asyncio.wait_for(kept.supervisor.run(), PATIENCE) == 0
    assert len(kept.said) == 1
    assert "worker 2" in kept.said[0]


async def test_the_second_stop_reaches_the_workers_as_their_second_signal(keep: Any) -> None:
    kept = keep("until(1); Path(f'asked{place}').touch(); until(2)")
    async with running(kept.supervisor.run()) as ended:
        await kept.pid(1)
        await kept.pid(2)
        kept.supervisor.stop()
        await until(lambda: all((kept.place / f"asked{n}").exists() for n in (1, 2)))
        assert not ended.done()
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0


async def test_two_stops_at_once_are_two(keep: Any) -> None:
    kept = keep("until(2)")
    async with running(kept.supervisor.run()) as ended:
        await kept.pid(1)
        await kept.pid(2)
        kept.supervisor.stop()
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0
    assert not any("killed" in line for line in kept.said)


async def test_what_a_service_manager_sends_to_every_process_is_no_second_stop(keep: Any) -> None:
    kept = keep("until(1); Path('asked').touch(); until(2)", number=1)
    async with running(kept.supervisor.run()) as ended:
        pid = await kept.pid(1)
        kept.supervisor.stop()
        await until((kept.place / "asked").exists)
        os.kill(pid, signal.SIGTERM)
        done, _ = await asyncio.wait({ended}, timeout=0.5)
        assert not done
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0


async def test_the_third_stop_kills_with_all_their_children(keep: Any) -> None:
    kept = keep(
        """
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("child.tmp").write_text(str(child.pid))
        Path("child.tmp").rename("1.2")
        until(99)
        """,
        number=1,
    )
    async with running(kept.supervisor.run()) as ended:
        child = await kept.pid(1, start=2)
        for _ in range(3):
            kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 1
    await until(lambda: not lives(child))
    assert "does not end and is killed" in kept.said[-1]


async def test_one_that_outstays_the_grace_is_killed(
    keep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RELEASE", "LAST", "MARGIN"):
        monkeypatch.setattr(module, name, 0.05)
    kept = keep("until(99)", number=1, grace=0.05)
    async with running(kept.supervisor.run()) as ended:
        await kept.pid(1)
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 1


async def test_workers_that_cannot_be_started_rightly_end_it(keep: Any) -> None:
    kept = keep("sys.exit(2)")
    assert await asyncio.wait_for(kept.supervisor.run(), PATIENCE) == 2


async def test_a_worker_that_cannot_be_started_is_tried_again(keep: Any) -> None:
    kept = keep("until(1)", number=1)
    program = kept.place / "python"
    kept.supervisor._command = [str(program), *kept.supervisor._command[1:]]
    async with running(kept.supervisor.run()) as ended:
        await until(lambda: bool(kept.said))
        assert "could not be started" in kept.said[0]
        script = kept.place / "script"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        script.chmod(0o700)
        script.rename(program)
        await kept.pid(1)
        kept.supervisor.stop()
        assert await asyncio.wait_for(ended, PATIENCE) == 0


async def test_no_worker_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD + "until(1)")
    program = f"""
import asyncio
from windlass.worker.supervisor import Supervisor
command = [{sys.executable!r}, "child.py"]
asyncio.run(Supervisor(command, 2, grace=5, burst=False, say=print).run())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path)
    kept = Kept(tmp_path, "until(1)")
    pids = [await kept.pid(1), await kept.pid(2)]
    process.kill()
    await process.wait()
    await until(lambda: not any(map(lives, pids)))


@pytest.mark.parametrize(
    ("code", "told"),
    [(0, "ended"), (3, "ended with code 3"), (-9, "was killed by SIGKILL"),
     (-60, "was killed by signal 60")],
)  # fmt: skip
def test_how_a_process_ended_is_told_plainly(code: int, told: str) -> None:
    assert how(code) == told
