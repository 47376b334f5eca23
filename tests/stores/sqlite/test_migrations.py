"""Migrations of the SQLite file, and errors on opening it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw
import pytest

from windlass.core.errors import (
    InvalidArgumentError,
    SchemaError,
    StoreCorruptError,
    StoreUnavailableError,
)
from windlass.stores.sql.migrations import Migration
from windlass.stores.sqlite import SqliteConfig, SqliteStore, connection, migrator
from windlass.testing.factories import claim_all, make_job

NEWEST = len(migrator.MIGRATIONS)


def store_on(path: Path) -> SqliteStore:
    return SqliteStore(path, durability="off")


async def made(path: Path) -> None:
    async with store_on(path) as store:
        await store.enqueue([make_job()])


def alter(path: Path, sql: str, *parameters: object) -> None:
    file = apsw.Connection(str(path))
    file.execute(sql, parameters)
    file.close()


def add_version(path: Path, version: int, *, breaking: bool) -> None:
    alter(
        path, "INSERT INTO windlass_schema VALUES (?, 'later', 'sum', ?, 0)", version, int(breaking)
    )


async def refusal(path: Path) -> str:
    async with store_on(path) as store:
        with pytest.raises(SchemaError) as caught:
            await store.enqueue([make_job()])
    return str(caught.value)


async def test_a_new_file_is_migrated_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with store_on(path) as store:
        done = await store.migrate()
        assert [name[:4] for name in done] == [f"{n:04d}" for n in range(1, NEWEST + 1)]
        assert list(await store.migrate()) == []
    async with store_on(path) as again:
        assert list(await again.migrate()) == []


async def test_an_altered_migration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await made(path)
    alter(path, "UPDATE windlass_schema SET checksum = 'altered' WHERE version = 1")
    assert "0001_jobs" in await refusal(path)
    assert str(path) in await refusal(path)


async def test_a_newer_compatible_schema_is_used(tmp_path: Path) -> None:
    """Old and new processes work side by side during a deploy."""
    path = tmp_path / "jobs.db"
    await made(path)
    add_version(path, NEWEST + 1, breaking=False)
    alter(path, "ALTER TABLE windlass_job ADD COLUMN color TEXT")
    async with store_on(path) as store:
        [answer] = await store.enqueue([make_job()])
        assert answer.accepted
        assert len(await claim_all(store)) == 2


async def test_a_newer_breaking_schema_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await made(path)
    add_version(path, NEWEST + 1, breaking=False)
    add_version(path, NEWEST + 2, breaking=True)
    message = await refusal(path)
    assert f"schema version {NEWEST + 2}" in message
    assert f"up to {NEWEST}" in message
    assert "pip install -U windlass" in message


async def test_a_refused_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await made(path)
    add_version(path, NEWEST + 1, breaking=True)
    before = await asyncio.to_thread(path.read_bytes)
    await refusal(path)
    assert await asyncio.to_thread(path.read_bytes) == before


async def test_a_migration_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    await made(path)
    bad = Migration(NEWEST + 1, "bad", "CREATE TABLE half (a); CREATE TABLE windlass_job (n);")
    with monkeypatch.context() as patch:
        patch.setattr(migrator, "MIGRATIONS", [*migrator.MIGRATIONS, bad])
        async with store_on(path) as store:
            with pytest.raises(Exception, match="job already exists"):
                await store.ping()
    file = apsw.Connection(str(path))
    assert not file.table_exists("main", "half")
    file.close()
    async with store_on(path) as store:
        assert len(await claim_all(store)) == 1


async def test_a_new_migration_is_applied_to_an_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    await made(path)
    more = Migration(NEWEST + 1, "color", "ALTER TABLE windlass_job ADD COLUMN color TEXT;")
    monkeypatch.setattr(migrator, "MIGRATIONS", [*migrator.MIGRATIONS, more])
    async with store_on(path) as store:
        assert list(await store.migrate()) == [f"{NEWEST + 1:04d}_color"]
        assert len(await claim_all(store)) == 1


@pytest.mark.parametrize("content", [b"not a database, but long enough " * 200, b"\0" * 8192])
async def test_a_file_that_is_not_a_database_is_corrupt(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "jobs.db"
    await asyncio.to_thread(path.write_bytes, content)
    async with store_on(path) as store:
        with pytest.raises(
            StoreCorruptError, match=r"jobs\.db is corrupt or not a SQLite database"
        ):
            await store.enqueue([make_job()])
    assert await asyncio.to_thread(path.read_bytes) == content


async def test_a_damaged_file_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await made(path)
    content = bytearray(await asyncio.to_thread(path.read_bytes))
    content[4096:] = b"\xaa" * (len(content) - 4096)
    await asyncio.to_thread(path.write_bytes, bytes(content))
    async with store_on(path) as store:
        with pytest.raises(StoreCorruptError, match=r"jobs\.db"):
            await store.enqueue([make_job()])
        with pytest.raises(StoreCorruptError, match="restore a backup"):
            await store.get([make_job().id])


async def test_a_missing_directory_is_unavailable_with_advice(tmp_path: Path) -> None:
    async with store_on(tmp_path / "nowhere" / "jobs.db") as store:
        with pytest.raises(StoreUnavailableError, match="check that its directory exists"):
            await store.ping()
        await asyncio.to_thread((tmp_path / "nowhere").mkdir)
        await store.ping()  # the same handle works as soon as the directory is there


async def test_a_directory_in_place_of_the_file_is_unavailable(tmp_path: Path) -> None:
    async with store_on(tmp_path) as store:
        with pytest.raises(StoreUnavailableError, match="cannot open"):
            await store.ping()


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    if os.getuid() == 0:  # root can write anywhere except there
        place = Path("/proc/self")
        return place if place.exists() else pytest.skip("root may write anywhere here")
    place = tmp_path / "closed"
    place.mkdir(mode=0o555)
    return place


async def test_an_unwritable_directory_is_unavailable_with_advice(unwritable: Path) -> None:
    async with store_on(unwritable / "jobs.db") as store:
        with pytest.raises(StoreUnavailableError, match="directory exists and is writable"):
            await store.ping()


async def test_a_read_only_file_is_unavailable_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses SQLite's read-only mode instead of permissions, which do not apply to root."""
    path = tmp_path / "jobs.db"
    await made(path)
    reading = apsw.Connection
    monkeypatch.setattr(
        apsw,
        "Connection",
        lambda name, **more: reading(name, flags=apsw.SQLITE_OPEN_READONLY, **more),
    )
    async with store_on(path) as store:
        with pytest.raises(StoreUnavailableError, match="check the permissions of the file"):
            await store.enqueue([make_job()])


@pytest.mark.parametrize("version", ["3.51.2", "3.9.10", "3.50.4"])
async def test_an_old_sqlite_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    async with store_on(tmp_path / "jobs.db") as store:
        with pytest.raises(StoreUnavailableError, match=r"requires 3\.51\.3 or newer: pip install"):
            await store.ping()


def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected full, normal, off"):
        SqliteConfig(path="jobs.db", durability="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1), ("off", 0)])
async def test_the_durability_settings_are_applied(
    tmp_path: Path, durability: str, level: int
) -> None:
    async with SqliteStore(tmp_path / "jobs.db", durability=durability) as store:
        await store.ping()
        writer = store._engine._connection
        assert writer is not None
        assert writer.pragma("journal_mode") == "wal"
        assert writer.pragma("synchronous") == level


async def test_the_wal_file_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(connection, "WAL_LIMIT", 1_000_000)
    async with store_on(tmp_path / "jobs.db") as store:
        for _ in range(60):
            await store.enqueue([make_job(payload=b"x" * 3_000) for _ in range(50)])
        size = (await asyncio.to_thread((tmp_path / "jobs.db-wal").stat)).st_size
        assert size < 2_000_000, "8 MB were written to it"
