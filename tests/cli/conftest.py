"""A directory with an application, and the command line run in it."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from windlass import Windlass, WorkerConfig
from windlass.cli import cli

TASKS = """
import asyncio
from pathlib import Path
from windlass import Context, Windlass, fixed

app = Windlass()
other = 5

@app.task
async def add(a: int, b: int = 0) -> int:
    return a + b

@app.task
async def greet(name: str) -> str:
    return f"hello {name}"

@app.task(max_retries=1, backoff=fixed(0))
async def broken(why: str) -> None:
    raise ValueError(why)

@app.task
async def film(ctx: Context, title: str) -> dict:
    ctx.stage("plan")
    ctx.log("writing [the] script")
    ctx.stage("render")
    ctx.progress(50)
    return {"file": title}

@app.task(max_retries=0)
async def stepped(ctx: Context) -> str:
    async def piece() -> int:
        with Path("pieces").open("a") as file:
            file.write("x")
        return 1
    await ctx.astep("first", piece)
    if not Path("fixed").exists():
        raise RuntimeError("not fixed")
    return "done"

@app.task
async def until_file(ctx: Context, started: str, go: str) -> str:
    Path(started).touch()
    while not Path(go).exists():
        await asyncio.sleep(0.02)
    return "finished"
"""
CompletedProcess = subprocess.CompletedProcess[str]
RunProcess = Callable[..., CompletedProcess]


@pytest.fixture
def project_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an app in tasks.py and no settings but the defaults."""
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def run_process(project_dir: Path) -> RunProcess:
    """Run the command as a separate process."""

    def run(*words: str, **environment: str) -> CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            cwd=project_dir,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


class CliResult:
    """Output and exit code of a command that ran in this process."""

    def __init__(self, words: tuple[str, ...]) -> None:
        done = CliRunner().invoke(cli, list(words))
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run_cli(project_dir: Path) -> Callable[..., CliResult]:
    """Run the command in this process, which is faster than a new one.

    Each call imports the modules of the directory again, and removes them afterwards.
    """

    def run(*words: str, **environment: str) -> CliResult:
        names = {file.stem for file in project_dir.glob("*.py")}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "path", [*sys.path])  # the command inserts the directory
            patch.setattr(sys, "dont_write_bytecode", True)
            for name in names:
                patch.delitem(sys.modules, name, raising=False)
            importlib.invalidate_caches()
            try:
                return CliResult(words)
            finally:
                for name in names:
                    sys.modules.pop(name, None)

    return run


@pytest.fixture
def enqueue_job(project_dir: Path) -> Callable[..., str]:
    """Enqueue a job, run all jobs unless `run` is false, and return its id."""

    def enqueue(task: str, /, *, run: bool = True, options: dict[str, Any] | None = None,
                **arguments: Any) -> str:  # fmt: skip
        space: dict[str, Any] = {"__name__": "tasks"}
        exec(compile(TASKS, "tasks.py", "exec"), space)
        app: Windlass = space["app"]
        try:
            job = space[task].options(**options or {}).enqueue(**arguments)
            if run:
                app.sync.call(_burst(app))
        finally:
            app.close()
        return str(job.id)

    return enqueue


@pytest.fixture
def enqueue_by_name(project_dir: Path) -> Callable[[str], str]:
    """Enqueue a job of a task without arguments, by its full name; return its id."""

    def enqueue(name: str) -> str:
        app = Windlass()

        @app.task(name=name)
        def task() -> None: ...

        try:
            return str(task.enqueue().id)
        finally:
            app.close()

    return enqueue


async def _burst(app: Windlass) -> None:
    await app.worker(WorkerConfig(burst=True, poll_interval=0.02, sweep_interval=0.02)).run()


class Terminal:
    """A command in a pseudo-terminal, and its output."""

    def __init__(self, project_dir: Path, columns: int, *words: str) -> None:
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "NO_COLOR"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *words],
            cwd=project_dir,
            env=environment | {"TERM": "xterm-256color"},
            stdin=terminal, stdout=terminal, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        self._fd = controller
        self.shown = ""

    def read_until(self, wanted: str | None) -> str:
        """Read until this text is shown (None: until the end); return all output."""
        while wanted is None or wanted not in self.shown:
            try:
                data = os.read(self._fd, 65_536)
            except OSError:  # raised on Linux when the other side is closed
                data = b""
            if not data:
                assert wanted is None, f"{wanted!r} did not appear: {self.shown}"
                break
            self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        return self.shown

    def end(self) -> int:
        self.read_until(None)
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._fd)


@pytest.fixture
def open_terminal(project_dir: Path) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def run(columns: int, *words: str) -> Terminal:
        terminals.append(Terminal(project_dir, columns, *words))
        return terminals[-1]

    yield run
    for terminal in terminals:
        terminal.close()
