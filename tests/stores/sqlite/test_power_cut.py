"""Durability: no power cut loses an acknowledged write.

Simulates a cut at every acknowledgement, and before and after every sync of a workload.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from tests.stores.sqlite.ack_ledger import Ledger, broken_promises, existing
from tests.stores.sqlite.workload import Workload

from windlass.store import Store
from windlass.stores.sqlite import SqliteConfig, SqliteStore, connection
from windlass.stores.sqlite.config import Durability
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import claim_all, make_job
from windlass.testing.power_cut import DiskOperation, DiskState, PowerCutDisk, write_image

FILE = "jobs.db"
ROUNDS = 3
PARTS = 3  # mixtures of kept and lost writes at each moment


@dataclass(frozen=True, slots=True)
class Cut:
    state: DiskState
    acknowledged: int  # entries of the ledger at that time


class Cuts:
    """Records the possible disk images at each moment of a power cut."""

    def __init__(self, disk: PowerCutDisk, ledger: Ledger) -> None:
        self.disk = disk
        self.ledger = ledger
        self.taken: list[Cut] = []
        self.checkpoints = 0
        disk.hook = self._at

    def _at(self, moment: DiskOperation, name: str) -> None:
        if moment in {"sync", "synced", "delete"}:
            self.take()
            self.checkpoints += moment == "synced" and name == FILE

    def take(self) -> None:
        self.taken.append(Cut(self.disk.state(), len(self.ledger.entries)))


class CuttingLedger(Ledger):
    """Also records a cut after each acknowledgement."""

    cuts: Cuts

    async def note(self, store: Store, ids: Iterable[UUID]) -> None:
        await super().note(store, ids)
        self.cuts.take()


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short workload has many checkpoints."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 60)


@pytest.fixture
def honest() -> Iterator[PowerCutDisk]:
    disk = PowerCutDisk()
    yield disk
    disk.close()


@pytest.fixture
def lying() -> Iterator[PowerCutDisk]:
    disk = PowerCutDisk(honors_sync=False)
    yield disk
    disk.close()


async def work(
    disk: PowerCutDisk, directory: Path, durability: Durability = "full", rounds: int = ROUNDS
) -> Cuts:
    ledger = CuttingLedger()
    cuts = ledger.cuts = Cuts(disk, ledger)
    clock = VirtualClock()
    await asyncio.to_thread(directory.mkdir)
    config = SqliteConfig(
        path=str(directory / FILE), durability=durability, exclusive=True, vfs=disk.name
    )
    async with SqliteStore("", config=config, clock=clock) as store:
        await Workload(store, clock, ledger).run(rounds)
    cuts.take()
    return cuts


def after_each(cuts: Cuts, directory: Path, *, parts: int = PARTS) -> Iterator[tuple[Cut, Path]]:
    """Write every image of every cut, one after the other."""
    for number, cut in enumerate(cuts.taken):
        for image in cut.state.images(seed=number, parts=parts):
            directory.mkdir()
            write_image(image, directory)
            yield cut, directory / FILE
            shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("rounds", "checkpoints", "cut_count"),
    [(1, 1, 65), pytest.param(ROUNDS, 5, 200, marks=pytest.mark.slow)],
)
async def test_no_power_cut_loses_an_acknowledged_write(
    honest: PowerCutDisk, tmp_path: Path, rounds: int, checkpoints: int, cut_count: int
) -> None:
    cuts = await work(honest, tmp_path / "real", rounds=rounds)
    assert cuts.checkpoints > checkpoints, "the workload must include checkpoints"
    assert len(cuts.taken) > cut_count
    enqueued = cuts.ledger.enqueued
    for cut, path in after_each(cuts, tmp_path / "image"):
        promises = cuts.ledger.promises(cut.acknowledged)
        assert broken_promises(path, promises, enqueued) == []


@pytest.mark.slow
async def test_the_store_opens_and_works_after_any_power_cut(
    honest: PowerCutDisk, tmp_path: Path
) -> None:
    cuts = await work(honest, tmp_path / "real", rounds=1)
    for cut, path in after_each(cuts, tmp_path / "image", parts=0):
        promises = existing(cuts.ledger.promises(cut.acknowledged))
        async with SqliteStore(path, durability="off", clock=VirtualClock()) as store:
            assert None not in await store.get(list(promises))
            job = make_job(queue="afterwards")
            await store.enqueue([job])
            assert [row.id for row in await claim_all(store, "afterwards")] == [job.id]


@pytest.mark.slow
async def test_normal_durability_may_lose_the_last_writes_but_not_the_file(
    honest: PowerCutDisk, tmp_path: Path
) -> None:
    cuts = await work(honest, tmp_path / "real", "normal")
    lost = 0
    for cut, path in after_each(cuts, tmp_path / "image", parts=1):
        assert broken_promises(path, {}, cuts.ledger.enqueued) == []
        promises = cuts.ledger.promises(cut.acknowledged)
        lost += bool(broken_promises(path, promises, cuts.ledger.enqueued))
    assert lost > 0, "without a sync at each commit the last writes are not durable"


async def test_without_syncs_a_power_cut_loses_acknowledged_jobs(
    honest: PowerCutDisk, tmp_path: Path
) -> None:
    """Proves that the test above can fail."""
    cuts = await work(honest, tmp_path / "real", "off", rounds=1)
    assert losses(cuts, tmp_path) > 10


@pytest.mark.slow
async def test_a_disk_that_ignores_syncs_is_detected(lying: PowerCutDisk, tmp_path: Path) -> None:
    cuts = await work(lying, tmp_path / "real", "full", rounds=1)
    assert losses(cuts, tmp_path) > 10


def losses(cuts: Cuts, directory: Path) -> int:
    return sum(
        bool(broken_promises(path, cuts.ledger.promises(cut.acknowledged), cuts.ledger.enqueued))
        for cut, path in after_each(cuts, directory / "image", parts=0)
    )
