"""A directory with an application in it, and the command line run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
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
    if not Path("mended").exists():
        raise RuntimeError("not mended")
    return "done"

@app.task
async def until_file(ctx: Context, started: str, go: str) -> str:
    Path(started).touch()
    while not Path(go).exists():
        await asyncio.sleep(0.02)
    return "finished"
"""
Answer = subprocess.CompletedProcess[str]
Call = Callable[..., Answer]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an app in tasks.py and no settings but the defaults."""
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def call(place: Path) -> Call:
    """The real command, as a process of its own."""

    def run(*words: str, **environment: str) -> Answer:
        return subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            cwd=place,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


class Asked:
    """What a command answered here, in this process."""

    def __init__(self, words: tuple[str, ...]) -> None:
        done = CliRunner().invoke(cli, list(words))
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def ask(place: Path) -> Callable[..., Asked]:
    return lambda *words: Asked(words)


@pytest.fixture
def put(place: Path) -> Callable[..., str]:
    """Put in a job, and run what there is to run unless told otherwise; answers its id."""

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


async def _burst(app: Windlass) -> None:
    await app.worker(WorkerConfig(burst=True, poll=0.02, sweep=0.02)).run()
