"""Setup of a process of a storm: environment, log, bytecode cache, faults and planted bug."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from multiprocessing import parent_process
from pathlib import Path
from random import Random
from threading import Thread

from benchmarks.chaos.ledger import STORM_VARIABLE
from benchmarks.chaos.processes.clock_skew import skew_clock
from benchmarks.chaos.processes.config import ProcessConfig

ROOT = str(Path(__file__).parents[3])
BYTECODE = str(Path(ROOT) / "build" / "bytecode")


def set_up_process(config: ProcessConfig, role: str, seed: int) -> None:
    directory = config.directory
    os.environ |= {
        STORM_VARIABLE: str(directory),
        "WINDLASS_URL": config.url,
        "WINDLASS_DATA": str(directory / "data"),
        "PYTHONPATH": ROOT,  # for child processes of workers
    }
    _enable_bytecode_cache()
    os.chdir(directory)
    log = os.open(directory / "log" / f"{role}-{os.getpid()}.log", os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    Thread(target=_exit_with_driver, daemon=True).start()
    if (directory / "disk").exists():  # a disk storm: install its faults
        import_module("benchmarks.chaos.disk.disk_config").install_disk(directory)
    if config.skew:
        skew_clock(config.skew, seed)
    if config.plant is not None:
        module, _, name = config.plant.partition(":")
        getattr(import_module(module), name)()


def _enable_bytecode_cache() -> None:
    if sys.dont_write_bytecode:
        os.environ |= bytecode_environment()
        sys.dont_write_bytecode, sys.pycache_prefix = False, BYTECODE


def bytecode_environment() -> dict[str, str]:
    """Return variables that enable bytecode files, so that children do not compile all imports."""
    if not sys.dont_write_bytecode:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": BYTECODE}


def _exit_with_driver() -> None:
    driver = parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def wrap_store(config: ProcessConfig, seed: int) -> None:
    """Wrap the store of the app; the environment must be set before."""
    from benchmarks.chaos import tasks  # noqa: PLC0415 - reads the environment
    from benchmarks.chaos.processes.lossy_store import LossyStore  # noqa: PLC0415 - as above
    from benchmarks.chaos.processes.settle_recorder import SettleRecorder  # noqa: PLC0415 - as above

    store = tasks.app._root  # noqa: SLF001 - no public way to wrap it
    if config.lost_calls:
        store = LossyStore(store, Random(seed), config.lost_calls)
    tasks.app._root = SettleRecorder(store)  # noqa: SLF001
