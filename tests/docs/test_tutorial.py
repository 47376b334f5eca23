"""The tutorial works: every file is written and every command runs, in order.

The output that a page shows must appear line by line in this order; other lines may come in
between. Instants, durations, sizes, percentages and worker names may differ. An id on the page
stands for the real one wherever it is used again. Commands that only read are repeated until their
output matches.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w.]+)(, continued)?\n")
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
END = "@end@"
PAUSE = 0.1  # seconds between two reads
WAIT_TIMEOUT = 30.0  # seconds for a command that only reads
READ_COMMANDS = ("windlass jobs ", "windlass workers ", "windlass queues ", "ls ", "cat ", "tail ")
WRITE_WORDS = ("submit", "cancel", "retry", "resume", "delete")
INSTALL_COMMANDS = ("python3 -m venv", "pip install", ". .venv")  # already done
VARIABLE_PARTS = {
    r"laptop\\-\d+\\-[0-9a-f]+": r"\\S+-\\d+-\\w+",
    r"\d\d:\d\d:\d\d\\\.\d+": r"[\\d:.]+",
    r"step\\-progress\\ \d+%.*": r"step-progress \\d+% .*",  # how much of it is stored differs
    r"\b\d+%": r"\\d+%",
    r"\b\d+(\\\.\d+)?(s|m|ms)\b": r"[\\d.]+(?:s|m|ms)",
    r"[\d,]+(\\\.\d+)?(\\ )MiB": r"[\\d,.]+ MiB",
    r"\[\d+\]\\ \d+": r"\\[\\d+\\] \\d+",
    "…": ".*",
    r"(\\ )+": r"\\s+",
}


@dataclass(frozen=True)
class Command:
    text: str
    shown: tuple[str, ...]

    @property
    def code(self) -> int:
        found = re.search(r"# exit code (\d+)$", self.text)
        return int(found[1]) if found else 0

    @property
    def only_reads(self) -> bool:
        arguments = shlex.split(self.text, comments=True)
        return self.text.startswith(READ_COMMANDS) and not any(
            word in WRITE_WORDS for word in arguments[:3]
        )


@dataclass
class Reader:
    """A shell in which the commands of the page run."""

    place: Path
    ids: dict[str, str] = field(default_factory=dict)  # id on the page: id of this run

    def __post_init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDLASS_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.place,
            env={**environment, "PATH": path, "COLUMNS": "100"},
            start_new_session=True,
        )

    def close(self) -> None:
        os.killpg(self._shell.pid, signal.SIGTERM)  # a worker then releases its jobs
        self._shell.kill()
        self._shell.communicate()

    def write(self, name: str, text: str, *, more: bool) -> None:
        with (self.place / name).open("a" if more else "w") as file:
            file.write(f"\n\n{text}" if more else text)

    def type(self, command: Command) -> None:
        """Run a command and compare its output; repeat it if it only reads."""
        deadline = time.monotonic() + WAIT_TIMEOUT
        while True:
            message, code = self._run(self._with_real_ids(command.text))
            missing = self._missing(command.shown, message)
            if missing is None and code == command.code:
                return
            if not command.only_reads or time.monotonic() > deadline:
                wrong = f"exit code {code}" if missing is None else f"no line like {missing!r}"
                pytest.fail(f"$ {command.text}\n{''.join(message)}\n{wrong}", pytrace=False)
            time.sleep(PAUSE)

    def _with_real_ids(self, text: str) -> str:
        for shown, real in self.ids.items():
            text = re.sub(rf"\b{shown[-6:]}\b", real[-6:], text.replace(shown, real))
        return text

    def _run(self, text: str) -> tuple[list[str], int]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {text}\n}} < /dev/null\nprintf '\\n%s %s\\n' {END} $?\n")
        self._shell.stdin.flush()
        message: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(END):
                return message, int(line.split()[1])
            message.append(line)
        pytest.fail(f"$ {text}\n{''.join(message)}\nthe shell ended", pytrace=False)

    def _missing(self, shown: tuple[str, ...], message: list[str]) -> str | None:
        """Return the first missing line of the page; new ids are stored."""
        lines = iter(message)
        for line in shown:
            pattern, new = self._pattern(line)
            found = next((hit for text in lines if (hit := pattern.fullmatch(text.rstrip()))), None)
            if found is None:
                return line
            self.ids.update(zip(new, found.groups(), strict=True))
        return None

    def _pattern(self, line: str) -> tuple[re.Pattern[str], list[str]]:
        line = self._with_real_ids(line)
        new = [one for one in ID.findall(line) if one not in self.ids.values()]
        pattern = re.escape(line.rstrip())
        for one in new:
            pattern = pattern.replace(re.escape(one), f"@{new.index(one)}@")
        for shown, real in VARIABLE_PARTS.items():
            pattern = re.sub(shown, real, pattern)
        return re.compile(re.sub(r"@\d+@", f"({ID.pattern})", pattern)), new


def commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        first, *shown = part.splitlines()
        yield Command(first, tuple(line for line in shown if line.strip() not in {"", "…"}))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    shell = Reader(tmp_path)
    yield shell
    shell.close()


@pytest.mark.slow
def test_the_tutorial_works(reader: Reader) -> None:
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "console":
            for command in commands(text):
                if not command.text.startswith(INSTALL_COMMANDS):
                    reader.type(command)
        elif file := FILE.match(text):
            reader.write(file[1], text, more=file[2] is not None)
        else:
            assert language in {"ini", "text"}, f"this block is not run:\n{text}"
